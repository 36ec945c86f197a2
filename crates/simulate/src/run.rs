//! One seed is one run: a world is drawn, disturbed for a while, left alone, and looked over.

use serde_json::json;

use crate::api::{Call, Kind};
use crate::checks::Violation;
use crate::controller::{FleetSettings, PlantedBug};
use crate::faults::Faults;
use crate::machine::Machine;
use crate::queue::Millis;
use crate::random::Random;
use crate::scenario::{self, Sizes};
use crate::windows;
use crate::world::{Act, Event, LONGEST_PAUSE, World, seconds};

/// Everything must be over this long after the last fault: nodes are given up after ten minutes, and their status is written.
/// Windows may be closed for a while, and some of it is done after they open.
const SETTLES_WITHIN: Millis = (90 + windows::PERIOD) * 60 * 1_000;

/// How often that is looked at.
const LOOK_EVERY: Millis = 4_000;

/// Watches and requests that were under way when the faults ended are over by then.
const RECOVERS_WITHIN: Millis = 90_000;

/// What the end of the last job brings is over by then.
const AFTER_THE_END: Millis = 60_000;

/// Then nothing may happen for this long but what expires.
const QUIET: Millis = 10 * 60 * 1_000;

/// Tells the draws of gates from all others.
const GATES: u64 = 0x0067_6174_6573;

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Fleets are not larger than this.
    pub largest_fleet: u64,
    /// A bug that is planted.
    pub planted: Option<PlantedBug>,
    /// Events that are kept for the report of a failure.
    pub last_events: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            largest_fleet: 300,
            planted: None,
            last_events: 60,
        }
    }
}

/// What a run without a violation was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events that happened.
    pub events: u64,
    /// Milliseconds of virtual time.
    pub millis: u64,
}

/// A run that broke an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed, which makes the same run again.
    pub seed: u64,
    /// What does not hold.
    pub violation: Violation,
    /// When, in seconds of virtual time.
    pub at: f64,
    /// What happened last.
    pub last_events: Vec<String>,
}

/// Makes the run of a seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Box<Failure>> {
    attempt(seed, options, 0).or_else(|_| attempt(seed, options, options.last_events))
}

fn attempt(seed: u64, options: Options, traced: usize) -> Result<Summary, Box<Failure>> {
    let mut world = draw(seed, options, traced);
    match live(&mut world) {
        Ok(()) => Ok(Summary {
            events: world.events,
            millis: world.now(),
        }),
        Err(violation) => Err(Box::new(Failure {
            seed,
            violation,
            at: seconds(world.now()),
            last_events: world.last_events(),
        })),
    }
}

/// Draws a world.
fn draw(seed: u64, options: Options, traced: usize) -> World {
    let mut random = Random::new(seed);
    let sizes = Sizes::draw(&mut random, options.largest_fleet);
    let faults = if random.permille(100) {
        Faults::none()
    } else {
        Faults::draw(&mut random)
    };
    let mut world = World::new(seed, faults, options.planted, traced);
    // Drawn apart, so that all else in a run stays as it was before there were gates.
    let mut gates = Random::new(seed ^ GATES);
    world.fleet = FleetSettings {
        max_active_pulls: random.permille(300).then(|| random.index(6) + 1),
        windows: if random.permille(150) {
            windows::draw(&mut random)
        } else {
            json!([])
        },
        gates_nodes: gates.permille(400),
    };
    world.checks.fleet = world.fleet.clone();
    world.resyncs = random.coin();
    let mut joins = Vec::new();
    for number in 0..sizes.nodes {
        let pulls = random.index(3) + 1;
        world.machines.push(Machine::new(number, pulls));
        world
            .by_name
            .insert(scenario::node_name(number), world.machines.len() - 1);
        let mut node = scenario::node(&mut random, number);
        if world.fleet.gates_nodes && gates.permille(800) {
            node["spec"] = scenario::tainted();
        }
        let create = Call::Create(Kind::Node, node);
        if world.fleet.gates_nodes && gates.coin() {
            // It joins when jobs are there.
            joins.push(create);
        } else {
            world.write(&create);
        }
    }
    if random.permille(800) {
        world.set_secret();
    }
    for number in 0..random.between(0..=sizes.nodes) {
        let pod = scenario::pod(&mut random, number, sizes.nodes);
        world.write(&Call::Create(Kind::Pod, pod));
    }
    let chaos = random.between(20_000..=240_000);
    for join in joins {
        world.queue.at(gates.between(1..=chaos), Event::Act(Act::Create(join)));
    }
    for number in 0..sizes.jobs {
        let at = random.between(0..=chaos / 2);
        let mut job = scenario::job(&mut random, number, sizes.nodes);
        if world.fleet.gates_nodes && gates.coin() {
            job = scenario::gating(job);
        }
        world.queue.at(at, Event::Act(Act::Create(job)));
    }
    for _ in 0..sizes.acts {
        let act = Act::draw(&mut world);
        world.queue.at(random.between(1..=chaos), Event::Act(act));
    }
    world.start_replica(0);
    if random.permille(300) {
        world.start_replica(1);
    }
    world.lead(0);
    for index in 0..world.machines.len() {
        world.start_agent(index);
    }
    world.chaos = chaos;
    world
}

/// Runs a world to its end.
fn live(world: &mut World) -> Result<(), Violation> {
    // What was deleted is created again, and what failed recovers, within the longest pause.
    world.run_until(world.chaos + LONGEST_PAUSE)?;
    world.calm_down();
    let calm = world.now();
    loop {
        world.run_until(world.now() + LOOK_EVERY)?;
        if calm + RECOVERS_WITHIN < world.now() {
            let now = world.now();
            world.checks.stale_status(&world.api, now).map_or(Ok(()), Err)?;
            world.overdue_job().map_or(Ok(()), Err)?;
            world.checks.closed_gate(&world.api, now).map_or(Ok(()), Err)?;
        }
        match world.checks.unfinished_job(&world.api) {
            None => break,
            Some(violation) if calm + SETTLES_WITHIN < world.now() => return Err(violation),
            Some(_) => {}
        }
    }
    world.run_until(world.now() + AFTER_THE_END)?;
    world.checks.settle();
    let quiet = world.now() + QUIET;
    while world.now() < quiet {
        world.run_until((world.now() + LOOK_EVERY).min(quiet))?;
        world.overdue_job().map_or(Ok(()), Err)?;
    }
    world.checks.unsettled(&world.api).map_or(Ok(()), Err)
}
