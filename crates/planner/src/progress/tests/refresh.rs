//! Campaigns that never end and have a schedule. The time of the tests begins at 8:00 UTC on Friday, 15 January 2027.

use larder_api::window::Window;

use super::*;
use crate::campaign::Campaign;
use crate::explain::ExplainedState;
use crate::refresh;
use crate::schedule::Schedule;
use crate::windows::Windows;

/// 8:30 by the clocks of UTC.
const TIME: i64 = 1_800;
const DAY: i64 = 86_400;

fn scheduled(zone: Option<&str>) -> Campaign {
    Campaign {
        ending: Ending::Never,
        refresh: Some(Schedule::parse("30 8 * * *", zone).unwrap()),
        ..campaign(9)
    }
}

/// One node that has its image since 8:00.
fn served(campaign: Campaign) -> Progress {
    let mut progress = Progress::new(campaign, at(0));
    progress.node_changed(&node(0), ordered(at(0), Answer::Succeeded), at(0));
    assert!(progress.decide(9, at(0)).is_empty());
    progress
}

fn due(progress: &Progress, served: i64) -> Timestamp {
    let campaign = progress.campaign();
    refresh::after_success(campaign.refresh.as_ref(), campaign.uid(), &node(0), at(served))
}

#[test]
fn a_node_is_refreshed_after_each_scheduled_time() {
    let mut progress = served(scheduled(None));
    let first = due(&progress, 0);
    assert!((at(TIME)..at(TIME + 600)).contains(&first));
    assert_eq!(progress.next_wake(), Some(at(TIME)), "for the status");
    assert!(progress.decide(9, first - SignedDuration::from_secs(1)).is_empty());
    assert_eq!(handed_out(&progress.decide(9, first)), [0]);

    let began = first.as_second() - at(0).as_second();
    take_up(&mut progress, 0, Answer::Succeeded, began);
    assert!(progress.decide(9, first).is_empty());
    assert_eq!(due(&progress, began), first + SignedDuration::from_secs(DAY));
    assert_eq!(handed_out(&progress.decide(9, due(&progress, began))), [0]);
}

#[test]
fn an_edit_of_the_schedule_takes_effect_at_once() {
    let mut progress = served(scheduled(None));
    progress.edit(
        Campaign {
            refresh: None,
            ..scheduled(None)
        },
        at(1),
    );
    assert!(progress.decide(9, at(TIME + 600)).is_empty(), "it is daily again");
    assert!(at(12 * 3_600) <= progress.next_wake().unwrap());
    progress.edit(scheduled(Some("Europe/Berlin")), at(TIME + 600));
    let next = due(&progress, 0);
    assert!(
        (at(TIME + DAY - 3_600)..at(TIME + DAY - 3_000)).contains(&next),
        "{next}"
    );
    assert_eq!(handed_out(&progress.decide(9, next)), [0]);
}

#[test]
fn the_next_refresh_is_told_by_the_clocks_of_the_job() {
    let progress = served(scheduled(Some("Asia/Kolkata")));
    let told = progress.next_refresh().unwrap().to_string();
    assert_eq!(told, "2027-01-16T08:30:00+05:30[Asia/Kolkata]");
    let said = progress.explain(&node(0), at(1));
    let moment = due(&progress, 0).in_tz("Asia/Kolkata").unwrap();
    assert_eq!(said.state, ExplainedState::Succeeded);
    assert_eq!(
        said.sentence,
        format!(
            "The image is there; its next refresh is at Sat 2027-01-16 {} Asia/Kolkata.",
            moment.strftime("%H:%M")
        )
    );
}

#[test]
fn a_refresh_that_is_due_outside_the_windows_waits_for_one() {
    let window = Window {
        from: "20:00".to_owned(),
        to: "21:00".to_owned(),
        ..Window::default()
    };
    let mut progress = served(Campaign {
        windows: Windows::parse(&[window], None).unwrap(),
        ..scheduled(None)
    });
    let told = progress.next_refresh().unwrap().to_string();
    assert_eq!(told, "2027-01-15T20:00:00+00:00[UTC]");
    assert!(progress.decide(9, at(TIME + 600)).is_empty());
    let said = progress.explain(&node(0), at(TIME + 600));
    assert_eq!(said.state, ExplainedState::Succeeded);
    assert_eq!(
        said.sentence,
        "The image is there, and its refresh is due. Waits: the job is outside its windows until Fri 20:00 UTC."
    );
    assert_eq!(handed_out(&progress.decide(9, at(12 * 3_600))), [0]);
}
