//! Jobs outside their windows, and orders that were on their way when the windows closed. The time of the tests begins at
//! midnight UTC.

use larder_planner::windows::Windows;

use super::*;

const DAY: i64 = 86_400;

/// One node, and one job for it; each pulls for ten minutes from midnight on where it is asked to.
fn one_job(has_windows: bool, fleet_has_windows: bool) -> Engine {
    const WINDOWS: &str = r#"[{"from":"00:00","to":"00:10"}]"#;
    let fleet = if fleet_has_windows { WINDOWS } else { "[]" };
    let mut engine = Engine::new(Limits {
        windows: Arc::new(Windows::parse_fleet(fleet).unwrap()),
        ..serving()
    });
    let mut spec = json!({"image": "a:1"});
    if has_windows {
        spec["windows"] = serde_json::from_str(WINDOWS).unwrap();
    }
    engine.show_all(
        vec![node("node"), idle("node"), pull_job("job", &spec, &Value::Null)],
        at(0),
    );
    engine
}

/// What is written to the node, if anything is.
fn write(engine: &mut Engine, now: Timestamp) -> Option<NodeWrite> {
    engine.next_node_write(now).map(|(_, write)| write)
}

fn is_order(write: Option<NodeWrite>) -> bool {
    matches!(write, Some(NodeWrite::Patch(patch)) if patch.to_string().contains("claims"))
}

#[rstest::rstest]
#[case::of_the_job(true, false)]
#[case::of_the_fleet(false, true)]
#[case::of_both(true, true)]
fn nothing_is_written_outside_the_windows(#[case] job: bool, #[case] fleet: bool) {
    let mut engine = one_job(job, fleet);
    engine.decide(at(600));
    assert_eq!(write(&mut engine, at(600)), None);
    assert_eq!(engine.next_wake(), Some(at(DAY)));
    engine.decide(at(DAY));
    assert!(is_order(write(&mut engine, at(DAY))));
}

#[rstest::rstest]
#[case::of_the_job(true, false)]
#[case::of_the_fleet(false, true)]
fn an_order_is_not_written_after_the_windows_closed(#[case] job: bool, #[case] fleet: bool) {
    let mut engine = one_job(job, fleet);
    engine.decide(at(599));
    assert_eq!(
        write(&mut engine, at(600)),
        None,
        "the order was made in time, and not written"
    );
    engine.decide(at(601));
    assert_eq!(write(&mut engine, at(601)), None);
    engine.decide(at(DAY));
    assert!(
        is_order(write(&mut engine, at(DAY))),
        "the node is served without a rest"
    );
}
