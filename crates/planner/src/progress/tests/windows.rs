//! Campaigns with windows. The time of the tests begins at 8:00 UTC on a Friday.

use larder_api::window::{Window, WindowEnd};

use super::*;
use crate::campaign::Campaign;
use crate::explain::ExplainedState;
use crate::windows::Windows;

/// From 8:10 to 8:20 by the clocks of UTC.
const OPENS: i64 = 600;
const CLOSES: i64 = 1_200;
const DAY: i64 = 86_400;

fn windowed(end: WindowEnd, nodes: usize) -> Progress {
    let window = Window {
        from: "08:10".to_owned(),
        to: "08:20".to_owned(),
        ..Window::default()
    };
    let campaign = Campaign {
        windows: Windows::parse(&[window], Some(end)).unwrap(),
        ..campaign(1)
    };
    let mut progress = Progress::new(campaign, at(0));
    for number in 0..nodes {
        progress.node_changed(&node(number), able(), at(0));
    }
    progress
}

#[test]
fn nothing_is_handed_out_before_a_window_opens() {
    let mut progress = windowed(WindowEnd::Finish, 2);
    assert!(progress.decide(9, at(0)).is_empty());
    assert!(
        !progress.wants_allowance(),
        "the fleet's limit is not what it waits for"
    );
    assert_eq!(progress.next_wake(), Some(at(OPENS)));
    let explained = progress.explain(&node(0), at(1));
    assert_eq!(explained.state, ExplainedState::Waiting);
    assert_eq!(
        explained.sentence,
        "Waits: the job is outside its windows until Fri 08:10 UTC."
    );

    assert_eq!(handed_out(&progress.decide(9, at(OPENS))), [0]);
    assert_eq!(progress.next_wake(), Some(at(CLOSES)));
}

#[test]
fn pulls_under_way_finish_after_the_window_closes() {
    let mut progress = windowed(WindowEnd::Finish, 2);
    assert_eq!(handed_out(&progress.decide(9, at(OPENS))), [0]);
    take_up(&mut progress, 0, Answer::Pulling, OPENS + 1);
    assert!(progress.decide(9, at(CLOSES)).is_empty());
    assert_eq!(progress.counts().active, 1);
    progress.node_changed(&node(0), ordered(at(OPENS + 1), Answer::Succeeded), at(CLOSES + 1));
    assert!(
        progress.decide(9, at(CLOSES + 1)).is_empty(),
        "the other node waits for tomorrow"
    );
    assert_eq!(handed_out(&progress.decide(9, at(OPENS + DAY))), [1]);
}

#[test]
fn pulls_under_way_are_stopped_where_the_job_says_so_and_go_on_in_the_next_window() {
    let mut progress = windowed(WindowEnd::Stop, 1);
    assert_eq!(handed_out(&progress.decide(9, at(OPENS))), [0]);
    take_up(&mut progress, 0, Answer::Pulling, OPENS + 1);
    assert_eq!(progress.decide(9, at(CLOSES)), [Step::Withdraw(node(0))]);
    progress.node_changed(&node(0), able(), at(CLOSES + 1));
    progress.settle(&node(0), OrderResult::Done, at(CLOSES + 1));
    assert!(progress.decide(9, at(CLOSES + 1)).is_empty());
    assert_eq!((progress.counts().active, progress.counts().slots), (0, 0));
    assert_eq!(handed_out(&progress.decide(9, at(OPENS + DAY))), [0], "without a rest");
}

#[test]
fn an_edit_that_takes_the_windows_away_opens_the_job() {
    let mut progress = windowed(WindowEnd::Finish, 1);
    assert!(progress.decide(9, at(0)).is_empty());
    progress.edit(campaign(1), at(1));
    assert_eq!(handed_out(&progress.decide(9, at(1))), [0]);
}

#[test]
fn another_hold_is_told_first() {
    let mut progress = windowed(WindowEnd::Finish, 1);
    progress.hold(Some(Hold::FleetPaused));
    assert!(progress.decide(9, at(0)).is_empty());
    assert_eq!(progress.hold, Some(Hold::FleetPaused));
}

fn fleet_windows(from: &str, to: &str) -> Arc<Windows> {
    let json = format!(r#"[{{"from":"{from}","to":"{to}"}}]"#);
    Arc::new(Windows::parse_fleet(&json).unwrap())
}

#[test]
fn the_windows_of_the_fleet_must_be_open_too() {
    let mut progress = windowed(WindowEnd::Finish, 1);
    progress.set_fleet_windows(fleet_windows("08:15", "09:00"));
    assert!(progress.decide(9, at(OPENS)).is_empty());
    assert_eq!(progress.next_wake(), Some(at(OPENS + 300)));
    assert_eq!(
        progress.explain(&node(0), at(OPENS)).sentence,
        "Waits: the job is outside the fleet's windows until Fri 08:15 UTC."
    );
    assert_eq!(handed_out(&progress.decide(9, at(OPENS + 300))), [0]);
}

#[test]
fn pulls_of_all_jobs_are_stopped_where_the_fleet_says_so() {
    let mut progress = Progress::new(campaign(1), at(0));
    let stops = fleet_windows("08:00", "08:10");
    progress.set_fleet_windows(Arc::new(Windows::clone(&stops).ending(WindowEnd::Stop)));
    progress.node_changed(&node(0), able(), at(0));
    assert_eq!(handed_out(&progress.decide(9, at(0))), [0]);
    take_up(&mut progress, 0, Answer::Pulling, 1);
    assert_eq!(progress.decide(9, at(600)), [Step::Withdraw(node(0))]);
}

#[test]
fn a_node_whose_order_came_too_late_is_next_when_the_windows_open() {
    let mut progress = windowed(WindowEnd::Finish, 1);
    assert_eq!(handed_out(&progress.decide(9, at(CLOSES - 1))), [0]);
    progress.settle(&node(0), OrderResult::Refused(Reason::Canceled), at(CLOSES));
    assert!(progress.decide(9, at(CLOSES)).is_empty());
    assert_eq!(progress.next_wake(), Some(at(OPENS + DAY)));
    assert_eq!(handed_out(&progress.decide(9, at(OPENS + DAY))), [0]);
}

proptest! {
    /// Whatever the nodes say, work is handed out inside a window alone.
    #[test]
    fn work_begins_inside_a_window(
        history in happenings(),
        stops in any::<bool>(),
        start in 0..2_000_i64,
    ) {
        let end = if stops { WindowEnd::Stop } else { WindowEnd::Finish };
        let mut progress = windowed(end, 5);
        let mut now = start;
        for happening in history {
            happen(&mut progress, happening, &mut now);
            let inside = (OPENS..CLOSES).contains(&now.rem_euclid(DAY));
            let steps = progress.decide(9, at(now));
            prop_assert!(inside || handed_out(&steps).is_empty(), "at {now}: {steps:?}");
            assert_same(&progress, &recomputed(&progress, at(now)));
        }
    }
}
