//! Whole jobs with nodes that do anything: whatever happens, a job ends and says how.

use larder_model::{Phase, Reason};
use proptest::prelude::*;
use serde_json::json;

use super::Before;
use super::samples::{Fleet, edge_nodes, job};
use crate::view::NodeKey;

/// What a node does with its order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Habit {
    Succeeds,
    Fails(Reason),
    /// Its agent never answers.
    Silent,
    /// Begins to pull and is not heard of again.
    Stalls,
    /// Is not ready, and never will be.
    Down,
}

fn habits() -> impl Strategy<Value = Vec<Habit>> {
    let habit = prop_oneof![
        4 => Just(Habit::Succeeds),
        1 => Just(Habit::Fails(Reason::NotFound)),
        1 => Just(Habit::Fails(Reason::CheckFailed)),
        1 => Just(Habit::Fails(Reason::DeadlineExceeded)),
        1 => Just(Habit::Silent),
        1 => Just(Habit::Stalls),
        1 => Just(Habit::Down),
    ];
    proptest::collection::vec(habit, 1..8)
}

/// Answers of all nodes that were handed the order and have not answered.
fn answer(fleet: &mut Fleet, habits: &[Habit], seconds: i64) {
    let handed_out: Vec<NodeKey> = fleet.choice().fit().cloned().collect();
    for node in handed_out {
        let Some(report) = fleet.report(&node) else {
            continue;
        };
        let number: usize = node[1..].parse().unwrap();
        let unanswered = report.answer() == larder_api::contract::Answer::Unanswered;
        match habits[number] {
            Habit::Succeeds if unanswered => fleet.succeed(&node, seconds),
            Habit::Fails(reason) if unanswered => fleet.fail(&node, reason, seconds),
            Habit::Stalls if unanswered => {
                fleet.say(&node, "a:1", Phase::Pulling, None, seconds);
                fleet.say(&node, "b:1", Phase::Waiting, None, seconds);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_job_ends_and_says_how(
        habits in habits(),
        concurrency in 1_usize..4,
        tolerance in proptest::sample::select(vec!["0", "0.1", "0.5", "1"]),
        deadline in proptest::option::of(600_i64..2_000),
    ) {
        let names: Vec<String> = (0..habits.len()).map(|number| format!("n{number}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "east")).collect();
        let mut nodes = edge_nodes(&pairs);
        for (name, habit) in names.iter().zip(&habits) {
            nodes.get_mut(name.as_str()).unwrap().ready = *habit != Habit::Down;
        }
        let template = json!({
            "images": ["a:1", "b:1"], "nodeNames": names, "concurrency": concurrency, "failureTolerate": tolerance,
            "timeoutSeconds": 120, "activeDeadlineSeconds": deadline,
        });
        let mut fleet = Fleet::start(&job(&template, &json!([])), nodes, &Before::default());
        // Every node may use its time up, or be waited for, one after the other.
        let limit = 10_000;
        let mut now = 0;
        while fleet.end(now).is_none() && now < limit {
            fleet.step(now);
            prop_assert!(fleet.progress.counts().slots <= concurrency);
            let running = fleet.status(now);
            prop_assert!(fleet.end(now).is_some() || running.phase.as_deref() == Some("InProgress"));
            now += 5;
            answer(&mut fleet, &habits, now);
            fleet.step(now);
        }
        prop_assert!(now < limit, "it did not end");
        let status = fleet.status(now);
        let failed = usize::try_from(status.failed).unwrap();
        let met = failed <= fleet.run.plan.tolerance.allowed(habits.len());
        prop_assert_eq!(status.phase.as_deref(), Some(if met { "Completed" } else { "Failure" }));
        prop_assert_eq!(status.reason.is_some(), !met);
        for (node, habit) in status.node_status.iter().zip(&habits) {
            let phase = node.phase.as_deref().unwrap();
            prop_assert!(phase != "Successful" || *habit == Habit::Succeeds);
            prop_assert_ne!(phase, "InProgress");
            if met && deadline.is_none() {
                prop_assert_ne!(phase, "Pending", "whoever can be tried was tried");
                prop_assert_eq!(phase == "Successful", *habit == Habit::Succeeds);
            }
        }
    }
}
