//! `tests/servers/setup` and `tests/servers/prerequisites` on bare machines, with stand-ins for the commands that would
//! take minutes. What works here and with the real commands on a used machine works on a new one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod machine;
mod prerequisites;
mod setup;
mod steps;
