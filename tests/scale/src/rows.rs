//! Which figures there are: the rows of the table, from small fleets to large ones.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use larder_api::NodeImage;
use larder_testkit::{wait_for, wait_until};
use serde_json::json;

use crate::bare::{self, Bare};
use crate::crowd;
use crate::hollow::{Fleet, make_named};
use crate::job::{Measured, Place, fresh_image};
use crate::stage::{Controller, Stage};
use crate::table::{Row, quantile, time};
use crate::virtual_time;
use crate::watching::Watching;
use crate::{LIMIT, PULL};

/// How long a pull takes that is slow.
const SLOW_PULL: Duration = Duration::from_secs(5);

/// How large everything is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes of the first rows, which are served `parallelism` at a time.
    pub small: usize,
    /// Nodes at a time.
    pub parallelism: usize,
    /// Dead nodes that come first.
    pub dead: usize,
    /// Jobs for single nodes.
    pub single_jobs: usize,
    /// Nodes that are served all at once, beside the bare client.
    pub full: usize,
    /// Nodes of the largest fleet with agents.
    pub large: usize,
    /// Times that short rows are repeated; the median counts.
    pub repeats: usize,
    /// The fleet without agents.
    pub crowd: crowd::Size,
    /// Nodes of the campaign in virtual time.
    pub virtual_nodes: usize,
}

impl Plan {
    /// What the table is made of.
    pub fn full() -> Self {
        Self {
            small: 200,
            parallelism: 10,
            dead: 10,
            single_jobs: 100,
            full: 1_000,
            large: 5_000,
            repeats: 3,
            crowd: crowd::Size {
                nodes: 10_000,
                jobs: 200,
                changes: 200,
            },
            virtual_nodes: 5_000,
        }
    }

    /// The same code with few nodes, so that it cannot rot.
    pub fn smoke() -> Self {
        Self {
            small: 9,
            parallelism: 3,
            dead: 2,
            single_jobs: 2,
            full: 10,
            large: 12,
            repeats: 1,
            crowd: crowd::Size {
                nodes: 2 * crowd::GROUPS,
                jobs: 2 * crowd::GROUPS,
                changes: 4,
            },
            virtual_nodes: 51,
        }
    }
}

/// All rows with hollow nodes, on servers of their own. `told` hears of each row as it is measured.
pub async fn hollow(plan: &Plan, told: &mut impl FnMut(Row)) {
    let stage = Stage::start().await;
    let floor = bare_client(&stage, plan).await;
    let controller = stage.controller().await;
    let watching = Watching::start(stage.client());
    let mut fleet = Fleet::new(&stage, &watching);
    fleet.grow(plan.small).await;
    small(&place(&stage, &fleet, &watching), plan, told).await;
    if plan.full <= plan.small {
        return;
    }
    fleet.grow(plan.full).await;
    full(&place(&stage, &fleet, &watching), plan, &controller, &floor, told).await;
    if plan.large <= plan.full {
        return;
    }
    fleet.grow(plan.large).await;
    large(&place(&stage, &fleet, &watching), plan, &controller, told).await;
    fleet.stop().await;
}

/// The bare client as often as the jobs it is compared with: the first run finds a server that has just started.
async fn bare_client(stage: &Stage, plan: &Plan) -> Bare {
    let mut runs = Vec::new();
    for _ in 0..plan.repeats {
        runs.push(bare::run(stage, plan.full).await);
    }
    runs.sort_by_key(|run| run.took);
    runs.swap_remove(plan.repeats / 2)
}

fn place<'a>(stage: &'a Stage, fleet: &'a Fleet<'a>, watching: &'a Watching) -> Place<'a> {
    Place { stage, fleet, watching }
}

/// A small fleet, a few nodes at a time.
async fn small(place: &Place<'_>, plan: &Plan, told: &mut impl FnMut(Row)) {
    let Plan {
        small: nodes,
        parallelism,
        ..
    } = *plan;
    let ideal = PULL * u32::try_from(nodes.div_ceil(parallelism)).unwrap();
    let pulled = repeat(place, plan, true).await;
    let took = median(&pulled, |run| run.took);
    let ratio = took.as_secs_f64() / ideal.as_secs_f64();
    told(
        Row::new(
            format!("{nodes} nodes, parallelism {parallelism}"),
            "81 s",
            "≤ 1.25 × ideal",
            format!("{} ({ratio:.2} ×)", time(took)),
        )
        .above(time(ideal)),
    );
    let present = repeat(place, plan, false).await;
    told(
        Row::new(
            "the same, image already on every node",
            "83 s",
            "≤ 3 s",
            time(median(&present, |run| run.took)),
        )
        .above(format!("{} writes", 2 * nodes)),
    );
    dead_nodes(place, plan, took, told).await;
    told(writes_row(
        "API writes per node until done, Events included",
        &pulled[0],
        nodes,
    ));
    told(slow_pulls(place, plan).await);
    let all = |of: fn(&Measured) -> &Vec<Duration>| pulled.iter().flat_map(of).copied().collect::<Vec<_>>();
    let (shown, turnaround) = (all(|run| &run.end_to_result), all(|run| &run.slot_to_call));
    told(
        Row::new(
            "pull end → result in a watch event, median",
            "4.0 s",
            "≤ 50 ms",
            time(quantile(&shown, 50)),
        )
        .above("one write".to_owned()),
    );
    told(
        Row::new(
            "slot freed → next node's CRI call, median",
            "~4 s",
            "≤ 50 ms",
            time(quantile(&turnaround, 50)),
        )
        .above("two writes and their events".to_owned()),
    );
    clean_up(place, plan, told).await;
    first_calls(place, plan, told).await;
    place.stage.clean_up().await;
}

async fn repeat(place: &Place<'_>, plan: &Plan, pulls: bool) -> Vec<Measured> {
    let mut runs = Vec::new();
    for _ in 0..plan.repeats {
        runs.push(place.run(plan.parallelism, plan.small, pulls).await);
        // What the API server spends on a write grows with the entries that are there already.
        place.stage.clean_up().await;
    }
    runs
}

/// Pulls that somebody watches: each is shown when it runs, and its bytes every two seconds.
async fn slow_pulls(place: &Place<'_>, plan: &Plan) -> Row {
    place.fleet.pulls_take(SLOW_PULL);
    let run = place.run(plan.small, plan.small, true).await;
    place.fleet.pulls_take(PULL);
    place.stage.clean_up().await;
    Row::new(
        format!("the same with pulls of {}", time(SLOW_PULL)),
        "–",
        "3, and progress",
        format!("{:.2}", per(run.effort.all_writes(), plan.small)),
    )
}

/// Nodes that are ready and whose agent is not: one that never was, and one that was and is gone.
async fn dead_nodes(place: &Place<'_>, plan: &Plan, without: Duration, told: &mut impl FnMut(Row)) {
    for once_alive in [false, true] {
        let names: Vec<String> = (0..plan.dead).map(|number| format!("dead-{number:05}")).collect();
        let client = place.stage.client();
        make_named(&client, names.clone()).await;
        let images = Api::<NodeImage>::all(client.clone());
        for name in &names {
            let there = async || images.get(name).await.map(drop);
            wait_for(LIMIT, "a NodeImage for a dead node", there).await.unwrap();
            if once_alive {
                let patch = json!({"status": {"desired": 0, "agent": {"version": "0.1.0", "lastSeen": "2026-01-01T00:00:00Z"}}});
                let params = PatchParams::default();
                images.patch_status(name, &params, &Patch::Merge(patch)).await.unwrap();
            }
        }
        let image = fresh_image();
        let spec = json!({"parallelism": plan.parallelism, "completionPolicy": {"type": "Always"}});
        let job = place.submit(image.clone(), spec).await;
        let results = place.watching.results(&image, plan.small, LIMIT).await;
        let took = *results.values().max().unwrap() - job.sent;
        let what = if once_alive {
            format!("the same, the first {} answered once and are gone", plan.dead)
        } else {
            format!(
                "the same, the first {} nodes are dead: the living are done after",
                plan.dead
            )
        };
        let goal = if once_alive { "+ 30 s, once" } else { "as without them" };
        told(Row::new(what, "first pull after 600 s", goal, time(took)).above(time(without)));
        let jobs = place.stage.jobs();
        jobs.delete(&job.name, &DeleteParams::default()).await.unwrap();
        let nodes = Api::<Node>::all(client);
        for name in &names {
            nodes.delete(name, &DeleteParams::default()).await.unwrap();
            let gone = async || images.get_opt(name).await.unwrap().is_none();
            wait_until(LIMIT, "a dead node's NodeImage to go", gone).await.unwrap();
        }
    }
}

/// Jobs for one node each, one after the other.
async fn first_calls(place: &Place<'_>, plan: &Plan, told: &mut impl FnMut(Row)) {
    let mut times = Vec::new();
    for number in 0..plan.single_jobs {
        let node = &place.fleet.nodes()[number % plan.small].name;
        let image = fresh_image();
        let spec = json!({"selector": {"names": [node]}, "completionPolicy": {"type": "Always"}});
        let job = place.submit(image.clone(), spec).await;
        place.watching.results(&image, 1, LIMIT).await;
        times.push(place.fleet.pulls(&image)[0].1 - job.sent);
    }
    let (median, late) = (quantile(&times, 50), quantile(&times, 99));
    told(Row::new(
        format!("job created → first CRI call, p99 of {} jobs", times.len()),
        "30–90 ms",
        "≤ 100 ms",
        format!("{} (median {})", time(late), time(median)),
    ));
}

/// Several jobs are deleted together, and every node's entries leave together.
async fn clean_up(place: &Place<'_>, plan: &Plan, told: &mut impl FnMut(Row)) {
    let (nodes, images) = (plan.small, 2 * plan.repeats);
    for _ in 0..images {
        place.run(nodes, nodes, false).await;
    }
    let before = place.stage.effort().await;
    place.stage.clean_up().await;
    let effort = place.stage.effort().await.since(&before);
    let of_nodes: f64 = effort
        .writes
        .iter()
        .filter(|(resource, _)| resource.starts_with("nodeimages"))
        .map(|(_, count)| count)
        .sum();
    told(Row::new(
        format!("clean-up writes per node, {images} images together"),
        "2 + 2 webhook calls, per image",
        "≤ 2",
        format!("{:.2}", per(of_nodes, nodes)),
    ));
}

/// All nodes at once, beside the bare client.
async fn full(place: &Place<'_>, plan: &Plan, controller: &Controller, floor: &Bare, told: &mut impl FnMut(Row)) {
    let nodes = plan.full;
    let mut runs = Vec::new();
    for _ in 0..plan.repeats {
        runs.push(place.run(nodes, nodes, true).await);
        // The bare client writes into empty objects too.
        place.stage.clean_up().await;
    }
    let took = median(&runs, |run| run.took);
    let ratio = took.as_secs_f64() / floor.took.as_secs_f64();
    told(
        Row::new(
            format!("{nodes} nodes, parallelism {nodes}"),
            "36–39 s",
            "≤ 1.5 × the bare client",
            format!("{} ({ratio:.2} ×)", time(took)),
        )
        .above(format!("{} (bare client)", time(floor.took))),
    );
    told(writes_row(&format!("API writes per node at {nodes}"), &runs[0], nodes));
    let cpu = runs
        .iter()
        .map(|run| per(run.effort.cpu, nodes) * 1e3)
        .collect::<Vec<_>>();
    told(
        Row::new(
            "API server CPU per node",
            "31 ms",
            "≤ 20 ms",
            format!("{:.1} ms", quantile(&cpu, 50)),
        )
        .above(format!("{:.1} ms (bare client)", per(floor.effort.cpu, nodes) * 1e3)),
    );
    statuses(&runs, nodes, "32 s", told);
    let (now, peak) = controller.memory();
    told(Row::new(
        format!("controller memory, {nodes} nodes, after {} jobs", plan.repeats),
        "128 MB (1 job)",
        "≤ 60 MB",
        format!("{now:.0} MB (peak {peak:.0} MB)"),
    ));
}

/// The largest fleet with agents.
async fn large(place: &Place<'_>, plan: &Plan, controller: &Controller, told: &mut impl FnMut(Row)) {
    let nodes = plan.large;
    let run = place.run(nodes, nodes, true).await;
    told(Row::new(
        format!("{nodes} nodes, parallelism {nodes}"),
        "–",
        "–",
        time(run.took),
    ));
    told(writes_row(&format!("API writes per node at {nodes}"), &run, nodes));
    statuses(&[run], nodes, "–", told);
    let (now, peak) = controller.memory();
    told(Row::new(
        format!("controller memory, {nodes} nodes"),
        "–",
        "–",
        format!("{now:.0} MB (peak {peak:.0} MB)"),
    ));
}

fn statuses(runs: &[Measured], nodes: usize, upstream: &'static str, told: &mut impl FnMut(Row)) {
    told(Row::new(
        format!("first job status after creation, {nodes} nodes"),
        upstream,
        "≤ 1 s",
        time(median(runs, |run| run.first_status)),
    ));
    told(Row::new(
        format!("longest time between two statuses, {nodes} nodes"),
        "–",
        "≤ 5 s",
        time(runs.iter().map(|run| run.stalest).max().unwrap()),
    ));
}

/// The fleet without agents, on servers of its own.
pub async fn crowded(plan: &Plan, told: &mut impl FnMut(Row)) {
    let stage = Stage::start().await;
    let size = plan.crowd;
    let measured = crowd::run(&stage, size).await;
    let crowd::Measured { pairs, .. } = measured;
    told(Row::new(
        format!(
            "controller memory, {} nodes, {} jobs, {pairs} pairs",
            size.nodes, size.jobs
        ),
        "–",
        "≤ 150 MB",
        format!("{:.0} MB (peak {:.0} MB)", measured.memory, measured.peak),
    ));
    told(Row::new(
        "one node with ten entries changes there: one turn of the controller's loop, mean",
        "–",
        "microseconds",
        time(measured.turn),
    ));
    told(Row::new(
        "the longest turn there since its start",
        "–",
        "–",
        time(measured.longest_turn),
    ));
}

/// The campaign without a clock.
pub fn virtually(plan: &Plan, told: &mut impl FnMut(Row)) {
    let Plan {
        virtual_nodes: nodes,
        parallelism,
        ..
    } = *plan;
    let pull = SignedDuration::from_secs(5);
    let run = virtual_time::run(nodes, parallelism, pull);
    assert_eq!((run.pulls, run.most_at_once), (nodes, parallelism));
    let ideal = pull.as_secs_f64() * per(f64::from(u32::try_from(nodes).unwrap()), parallelism);
    told(
        Row::new(
            format!("in virtual time: {nodes} nodes, parallelism {parallelism}, 5 s pulls"),
            "never ends (1,500 nodes, parallelism 2)",
            "as many pulls as nodes, within 1 %",
            format!("{} pulls, {:.0} s", run.pulls, run.seconds),
        )
        .above(format!("{ideal:.0} s")),
    );
}

fn writes_row(what: &str, run: &Measured, nodes: usize) -> Row {
    Row::new(
        what,
        "4.1–5.9 + 2 webhook calls",
        "2",
        format!("{:.2}", per(run.effort.all_writes(), nodes)),
    )
}

fn median(runs: &[Measured], of: impl Fn(&Measured) -> Duration) -> Duration {
    quantile(&runs.iter().map(of).collect::<Vec<_>>(), 50)
}

fn per(amount: f64, nodes: usize) -> f64 {
    amount / f64::from(u32::try_from(nodes).unwrap())
}
