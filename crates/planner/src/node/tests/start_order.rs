//! The order in which queued entries start.

use larder_api::node_image::Claim;

use super::*;

/// An entry of this job (none: by hand) at this place.
fn placed(name: &str, job: Option<&str>, position: Option<i32>) -> ImageTagSpec {
    ImageTagSpec {
        position,
        claims: job
            .map(|uid| Claim {
                uid: uid.into(),
                version: 0,
            })
            .into_iter()
            .collect(),
        ..tag(name)
    }
}

/// The order in which one slot serves them.
fn served(scheduler: &mut NodeScheduler) -> Vec<String> {
    let mut order = Vec::new();
    for turn in 0..40 {
        for step in scheduler.decide(at(turn), &wall()) {
            match step {
                NodeStep::Look { run, .. } => scheduler.looked(run, Found::Absent, at(turn), &wall()),
                NodeStep::Pull { run, key, .. } => {
                    order.push(key.tag);
                    scheduler.ended(run, pulled("x"), at(turn), &wall());
                }
                _ => {}
            }
        }
    }
    order
}

#[rstest]
#[case::no_positions(
    &[("b", Some("j"), None), ("a", Some("j"), None), ("c", Some("j"), None)],
    &["a", "b", "c"]
)]
#[case::lower_first(
    &[("a", Some("j"), Some(2)), ("b", Some("j"), Some(0)), ("c", Some("j"), Some(1))],
    &["b", "c", "a"]
)]
#[case::by_hand(
    &[("a", None, Some(9)), ("b", None, Some(3))],
    &["b", "a"]
)]
#[case::equal_positions_by_name(
    &[("b", Some("j"), Some(1)), ("a", Some("j"), Some(1))],
    &["a", "b"]
)]
#[case::none_is_the_first(
    &[("a", Some("j"), Some(1)), ("b", Some("j"), None)],
    &["b", "a"]
)]
#[case::a_low_position_takes_no_place_of_another_job(
    &[("a", Some("j"), Some(7)), ("b", Some("k"), Some(0))],
    &["a", "b"]
)]
fn position(#[case] tags: &[(&str, Option<&str>, Option<i32>)], #[case] want: &[&str]) {
    let fresh: Vec<ImageTagSpec> = tags
        .iter()
        .map(|(name, job, position)| placed(name, *job, *position))
        .collect();
    let looked_up: Vec<ImageTagSpec> = fresh.iter().cloned().map(if_not_present).collect();
    assert_eq!(served(&mut scheduler(1, &fresh)), want, "pulled without a look");
    assert_eq!(served(&mut scheduler(1, &looked_up)), want, "pulled after a look");
}

#[test]
fn a_job_orders_its_own_places_only() {
    let two_jobs = [
        placed("a", Some("j"), Some(5)),
        placed("b", Some("k"), Some(9)),
        placed("c", Some("j"), Some(4)),
        placed("d", Some("k"), Some(8)),
    ];
    let started = pulls(&scheduler(4, &two_jobs).decide(at(0), &wall()));
    let names: Vec<String> = started.into_iter().map(|(_, tag)| tag).collect();
    assert_eq!(names, ["c", "d", "a", "b"]);
}

#[test]
fn who_came_earlier_goes_first_whatever_the_position() {
    let mut scheduler = scheduler(1, &[tag("busy")]);
    scheduler.decide(at(0), &wall());
    let early = placed("early", Some("j"), Some(9));
    scheduler.take_orders(entries(&spec(&[tag("busy"), early.clone()])), None, at(1));
    scheduler.decide(at(1), &wall());
    let late = placed("late", Some("j"), Some(0));
    scheduler.take_orders(entries(&spec(&[tag("busy"), early, late])), None, at(2));
    scheduler.decide(at(2), &wall());
    scheduler.ended(1, pulled("x"), at(3), &wall());
    assert_eq!(pulls(&scheduler.decide(at(3), &wall())), [(2, "early".to_owned())]);
}

#[test]
fn a_quick_answer_does_not_overtake_a_lower_position() {
    let first = if_not_present(placed("z", Some("j"), Some(0)));
    let second = if_not_present(placed("a", Some("j"), Some(1)));
    let stranger = if_not_present(placed("m", Some("k"), Some(3)));
    let mut scheduler = scheduler(3, &[first, second, stranger]);
    let looks = scheduler.decide(at(0), &wall());
    let run_of = |name: &str| {
        let run = looks.iter().find_map(|step| match step {
            NodeStep::Look { run, key } if key.tag == name => Some(*run),
            _ => None,
        });
        run.unwrap()
    };
    scheduler.looked(run_of("a"), Found::Absent, at(1), &wall());
    scheduler.looked(run_of("m"), Found::Absent, at(1), &wall());
    assert_eq!(
        pulls(&scheduler.decide(at(1), &wall())),
        [(4, "m".to_owned())],
        "another job does not wait for it"
    );
    scheduler.looked(run_of("z"), Found::Absent, at(2), &wall());
    assert_eq!(
        pulls(&scheduler.decide(at(2), &wall())),
        [(5, "z".to_owned()), (6, "a".to_owned())]
    );
}

#[test]
fn a_lower_position_that_is_there_already_holds_up_no_other() {
    let first = if_not_present(placed("z", Some("j"), Some(0)));
    let second = if_not_present(placed("a", Some("j"), Some(1)));
    let mut scheduler = scheduler(3, &[first, second]);
    scheduler.decide(at(0), &wall());
    scheduler.looked(1, Found::Absent, at(0), &wall());
    assert!(pulls(&scheduler.decide(at(0), &wall())).is_empty());
    scheduler.looked(2, Found::Present(Image::default()), at(0), &wall());
    assert_eq!(pulls(&scheduler.decide(at(0), &wall())), [(3, "a".to_owned())]);
}

#[test]
fn a_look_without_answer_holds_up_no_other() {
    let first = if_not_present(placed("z", Some("j"), Some(0)));
    let second = if_not_present(placed("a", Some("j"), Some(1)));
    let mut scheduler = scheduler(3, &[first, second]);
    scheduler.decide(at(0), &wall());
    scheduler.looked(1, Found::Absent, at(0), &wall());
    scheduler.looked(2, Found::Unknown(Reason::RuntimeDown, "away".into()), at(0), &wall());
    assert_eq!(pulls(&scheduler.decide(at(0), &wall())), [(3, "a".to_owned())]);
}

#[test]
fn who_waited_longest_goes_first() {
    let mut scheduler = NodeScheduler::new(1);
    scheduler.take_orders(entries(&spec(&[tag("z")])), None, at(0));
    scheduler.decide(at(0), &wall());
    scheduler.take_orders(entries(&spec(&[tag("z"), tag("m")])), None, at(1));
    scheduler.take_orders(entries(&spec(&[tag("z"), tag("m"), tag("a")])), None, at(2));
    let mut order = Vec::new();
    for run in 1..=3 {
        scheduler.ended(run, pulled("x"), at(2 + run), &wall());
        order.extend(
            pulls(&scheduler.decide(at(2 + run), &wall()))
                .into_iter()
                .map(|(_, tag)| tag),
        );
    }
    assert_eq!(order, ["m", "a"]);
}

#[test]
fn a_try_after_a_pause_goes_behind_those_who_came_meanwhile() {
    let mut scheduler = NodeScheduler::new(1);
    scheduler.take_orders(entries(&spec(&[tag("bad")])), None, at(0));
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(Reason::Dns), at(10), &wall());
    scheduler.take_orders(entries(&spec(&[tag("bad"), tag("new")])), None, at(10));
    assert_eq!(pulls(&scheduler.decide(at(10), &wall())), [(2, "new".to_owned())]);
    assert!(pulls(&scheduler.decide(at(20), &wall())).is_empty());
}

/// An entry with this priority.
fn ranked(name: &str, priority: i32) -> ImageTagSpec {
    ImageTagSpec { priority, ..tag(name) }
}

#[rstest]
#[case::higher_first(&[("a", 0), ("b", 7), ("c", 1)], &["b", "c", "a"])]
#[case::below_none(&[("a", -1), ("b", 0)], &["b", "a"])]
#[case::equal_by_name(&[("b", 3), ("a", 3), ("c", 4)], &["c", "a", "b"])]
fn priority(#[case] tags: &[(&str, i32)], #[case] want: &[&str]) {
    let fresh: Vec<ImageTagSpec> = tags.iter().map(|(name, priority)| ranked(name, *priority)).collect();
    let looked_up: Vec<ImageTagSpec> = fresh.iter().cloned().map(if_not_present).collect();
    assert_eq!(served(&mut scheduler(1, &fresh)), want, "pulled without a look");
    assert_eq!(served(&mut scheduler(1, &looked_up)), want, "pulled after a look");
}

#[test]
fn a_higher_priority_that_comes_later_starts_first_and_stops_nothing() {
    let mut scheduler = scheduler(1, &[tag("busy"), tag("early")]);
    assert_eq!(pulls(&scheduler.decide(at(0), &wall())), [(1, "busy".to_owned())]);
    let orders = [tag("busy"), tag("early"), ranked("late", 1)];
    scheduler.take_orders(entries(&spec(&orders)), None, at(1));
    assert!(scheduler.decide(at(1), &wall()).is_empty());
    scheduler.ended(1, pulled("x"), at(2), &wall());
    assert_eq!(pulls(&scheduler.decide(at(2), &wall())), [(2, "late".to_owned())]);
}

#[test]
fn an_edited_priority_changes_the_order_and_nothing_else() {
    let mut scheduler = scheduler(1, &[tag("busy"), tag("early"), tag("late")]);
    scheduler.decide(at(0), &wall());
    let orders = [ranked("busy", -9), tag("early"), ranked("late", 1)];
    scheduler.take_orders(entries(&spec(&orders)), None, at(1));
    assert!(scheduler.decide(at(1), &wall()).is_empty(), "what runs goes on");
    scheduler.ended(1, pulled("x"), at(2), &wall());
    assert_eq!(pulls(&scheduler.decide(at(2), &wall())), [(2, "late".to_owned())]);
}

#[test]
fn a_slot_is_kept_for_a_higher_priority_that_is_being_looked_up() {
    let high = if_not_present(ranked("high", 1));
    let low = [tag("low-1"), tag("low-2")];
    let mut scheduler = scheduler(2, &[high, low[0].clone(), low[1].clone()]);
    let steps = scheduler.decide(at(0), &wall());
    assert_eq!(pulls(&steps), [(2, "low-1".to_owned())]);
    scheduler.looked(1, Found::Absent, at(1), &wall());
    assert_eq!(pulls(&scheduler.decide(at(1), &wall())), [(3, "high".to_owned())]);
}

#[test]
fn a_lower_priority_gets_one_pull_in_ten() {
    let mut orders = vec![tag("low"), tag("lower")];
    orders[1].priority = -1;
    orders.extend((0..25).map(|number| ranked(&format!("high-{number:02}"), 1)));
    let order = served(&mut scheduler(1, &orders));
    let place = |name: &str| order.iter().position(|tag| tag == name);
    assert_eq!((place("low"), place("lower")), (Some(9), Some(19)), "{order:?}");
}
