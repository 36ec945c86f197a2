//! The controller and the agents in virtual time, against a simulated API server and fleet.
//!
//! One seed is one run: what there is, what people do, what goes wrong and when is drawn from it, and nothing else is
//! random. The controller's engine and the agents' decision logic are the real ones; the API server, the network, the
//! machines and the clocks are simulated. After every step the [`Invariant`]s are checked.
//!
//! | module | what it is |
//! |---|---|
//! | [`run`](mod@run) | one run from seed to verdict |
//! | `world` | everything there is in a run, and what happens to it |
//! | `api`, `stream` | the API server and its watches |
//! | `kubernetes` | what is read of Kubernetes' own kinds |
//! | `replica`, `controller` | the controller's loop, and its engine |
//! | `machine`, `agent` | a node, and its agent's decisions |
//! | `scenario`, `windows`, `faults` | what is drawn |
//! | `checks` | what must hold |

mod agent;
mod api;
mod checks;
mod controller;
mod faults;
mod kubernetes;
mod machine;
mod queue;
mod random;
mod replica;
pub mod run;
mod scenario;
mod stream;
mod sweep;
mod windows;
mod world;

pub use checks::{Invariant, Violation};
pub use controller::PlantedBug;
pub use run::{Failure, Options, Summary, run};
pub use sweep::{Sweep, sweep};
