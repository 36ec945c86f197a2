//! How long an entry lives.

use std::collections::BTreeMap;

use larder_api::node_image::{ImageStatus, LastSucceeded, NodeImageStatus, SealedCredential};
use larder_model::{ImageRef, Phase, PullWhen};
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::claim;
use crate::view::samples::{at, campaign};

fn reference(uid: &str) -> ObjectReference {
    ObjectReference {
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

fn terms() -> Terms {
    Terms {
        ttl_seconds: 600,
        ..campaign(1).terms("node-1", at(0))
    }
}

fn running() -> EntryOwner {
    EntryOwner::Running(Some(terms()))
}

fn ended(seconds: i64) -> EntryOwner {
    EntryOwner::Ended {
        at: at(seconds),
        pins: false,
    }
}

/// A node with `nginx:1`, claimed by these owners at time 0, and answered with a phase.
fn object(owners: &[&str], phase: Option<Phase>) -> NodeImage {
    let mut object = NodeImage::new("node-1", NodeImageSpec::default());
    for uid in owners {
        let mut spec = object.spec.clone();
        claim::claim(
            &mut spec,
            &object,
            &ImageRef::parse("nginx:1").unwrap(),
            &reference(uid),
            at(0),
        );
        object.spec = spec;
    }
    let version = object.entry("nginx", "1").map_or(0, |entry| entry.version);
    let tag = phase.map(|phase| ImageTagStatus {
        tag: "1".into(),
        version: Some(version),
        phase: phase.as_str().into(),
        completion_time: phase.is_final().then(|| Time(at(5))),
        last_succeeded: (phase == Phase::Succeeded).then(|| LastSucceeded {
            version,
            ..LastSucceeded::default()
        }),
        ..ImageTagStatus::default()
    });
    object.status = Some(NodeImageStatus {
        image_statuses: [(
            "nginx".to_owned(),
            ImageStatus {
                tags: tag.into_iter().collect(),
            },
        )]
        .into(),
        ..NodeImageStatus::default()
    });
    if let Some(entry) = entry_mut(&mut object) {
        entry.pull_policy.ttl_seconds_after_finished = 600;
    }
    object
}

fn entry_mut(object: &mut NodeImage) -> Option<&mut ImageTagSpec> {
    object.spec.images.get_mut("nginx")?.tags.first_mut()
}

fn swept(object: &NodeImage, owners: &[(&str, EntryOwner)], seconds: i64) -> Sweep {
    let known: BTreeMap<&str, EntryOwner> = owners.iter().cloned().collect();
    let owner = |_: EntryName<'_>, reference: &ObjectReference| {
        known
            .get(reference.uid.as_deref().unwrap())
            .cloned()
            .unwrap_or(EntryOwner::Unknown)
    };
    // What the node says ended at second 5, by its own clock, is seen at once.
    sweep(object, object.spec.clone(), owner, &seen_at(object, 5), at(seconds))
}

/// What is known of a NodeImage that was first seen at this moment.
fn seen_at(object: &NodeImage, seconds: i64) -> HandWrittenEnds {
    let mut ends = HandWrittenEnds::default();
    ends.observe(object, at(seconds));
    ends
}

fn stays(sweep: &Sweep) -> bool {
    !sweep.spec.images.is_empty()
}

#[test]
fn an_entry_stays_while_its_job_runs_however_long_that_takes() {
    let object = object(&["a"], Some(Phase::Succeeded));
    let sweep = swept(&object, &[("a", running())], 10_000_000);
    assert!(stays(&sweep));
    assert_eq!(sweep.next, None);
}

#[test]
fn its_time_to_live_begins_when_the_last_owner_ended() {
    let object = object(&["a", "b"], Some(Phase::Succeeded));
    assert!(stays(&swept(&object, &[("a", ended(10)), ("b", running())], 5_000)));
    let both = [("a", ended(10)), ("b", ended(1_000))];
    let sweep = swept(&object, &both, 1_599);
    assert!(stays(&sweep));
    let due = sweep.next.unwrap();
    assert!(at(1_600) <= due && due < at(1_660), "{due}");
    assert!(!stays(&swept(&object, &both, 1_660)));
}

#[test]
fn entries_that_are_over_leave_in_one_sweep() {
    let mut object = object(&["a"], Some(Phase::Succeeded));
    for (name, uid) in [("redis", "b"), ("busybox", "c")] {
        let mut spec = object.spec.clone();
        claim::claim(
            &mut spec,
            &object,
            &ImageRef::parse(name).unwrap(),
            &reference(uid),
            at(0),
        );
        object.spec = spec;
        let image = object.spec.images.get_mut(name).unwrap();
        image.tags[0].pull_policy.ttl_seconds_after_finished = 600;
        let tag = ImageTagStatus {
            tag: "latest".into(),
            phase: "Succeeded".into(),
            ..ImageTagStatus::default()
        };
        let statuses = &mut object.status.as_mut().unwrap().image_statuses;
        statuses.insert(name.into(), ImageStatus { tags: vec![tag] });
    }
    let second = at(0).as_second().rem_euclid(60);
    let phase = jitter::spread(&["node-1"], 60).cast_signed();
    // Three jobs that ended within the same minute of this node's sweeps.
    let base = 60 + (phase - second).rem_euclid(60);
    let owners = [("a", ended(base + 1)), ("b", ended(base + 20)), ("c", ended(base + 59))];
    let due = swept(&object, &owners, base).next.unwrap();
    let after = swept(&object, &owners, due.duration_since(at(0)).as_secs());
    assert!(!stays(&after), "{:?}", after.spec.images.keys());
}

#[test]
fn a_deleted_job_takes_its_entry_along_after_a_moment() {
    let object = object(&["a"], Some(Phase::Pulling));
    let gone = [("a", EntryOwner::Gone(at(10)))];
    assert_eq!(swept(&object, &gone, 10).next, Some(at(11)));
    assert!(!stays(&swept(&object, &gone, 11)));
}

#[test]
fn a_deleted_job_leaves_what_others_need() {
    let object = object(&["a", "b"], Some(Phase::Succeeded));
    let sweep = swept(&object, &[("a", EntryOwner::Gone(at(10))), ("b", running())], 20);
    let entry = &sweep.spec.images["nginx"].tags[0];
    assert_eq!(entry.owner_references, [reference("b")]);
    assert_eq!(entry.claims.len(), 1);
}

#[test]
fn a_job_that_no_longer_wants_the_image_here_is_taken_off_at_once() {
    let object = object(&["a"], Some(Phase::Pulling));
    assert!(!stays(&swept(&object, &[("a", EntryOwner::Running(None))], 1)));
}

#[test]
fn owners_that_nobody_knows_are_kept_as_they_are() {
    let object = object(&["stranger"], Some(Phase::Succeeded));
    let sweep = swept(&object, &[], 10_000_000);
    assert_eq!((sweep.spec, sweep.next), (object.spec, None));
}

#[test]
fn a_pinned_entry_stays_until_its_last_pinning_job_is_deleted() {
    let object = object(&["a"], Some(Phase::Succeeded));
    let pins = EntryOwner::Ended { at: at(10), pins: true };
    let sweep = swept(&object, &[("a", pins)], 10_000_000);
    assert!(sweep.spec.images["nginx"].tags[0].pin);
    assert!(!stays(&swept(&object, &[("a", EntryOwner::Gone(at(0)))], 100)));
}

#[test]
fn a_pin_goes_with_the_job_that_pins_and_the_entry_goes_on() {
    let mut object = object(&["a", "b"], Some(Phase::Succeeded));
    entry_mut(&mut object).unwrap().pin = true;
    let sweep = swept(&object, &[("a", EntryOwner::Gone(at(0))), ("b", running())], 100);
    assert!(!sweep.spec.images["nginx"].tags[0].pin);
}

#[rstest]
#[case::says_its_last_word(Some(Phase::Pulling), 19, true)]
#[case::was_given_time_enough(Some(Phase::Pulling), 20, false)]
#[case::never_answered(None, 20, false)]
#[case::has_answered(Some(Phase::Failed), 20, true)]
fn a_job_that_ended_takes_back_what_nobody_answered(
    #[case] phase: Option<Phase>,
    #[case] seconds: i64,
    #[case] want: bool,
) {
    let object = object(&["a"], phase);
    assert_eq!(stays(&swept(&object, &[("a", ended(10))], seconds)), want);
}

fn by_hand(phase: Option<Phase>) -> NodeImage {
    let mut object = object(&["a"], phase);
    let entry = entry_mut(&mut object).unwrap();
    entry.owner_references.clear();
    entry.claims.clear();
    entry.pull_policy.ttl_seconds_after_finished = 30;
    object
}

#[rstest]
#[case::never_pulled(None, 1_000_000, true)]
#[case::is_being_pulled(Some(Phase::Pulling), 1_000_000, true)]
#[case::has_time_left(Some(Phase::Succeeded), 34, true)]
#[case::its_time_is_over(Some(Phase::Succeeded), 35, false)]
#[case::failed_and_over(Some(Phase::Failed), 35, false)]
fn an_entry_that_somebody_wrote_has_its_own_time(
    #[case] phase: Option<Phase>,
    #[case] seconds: i64,
    #[case] want: bool,
) {
    let sweep = swept(&by_hand(phase), &[], seconds);
    assert_eq!(stays(&sweep), want);
    if seconds == 34 {
        assert_eq!(sweep.next, Some(at(35)));
    }
}

/// A board without a battery boots in 1970; another one is a year ahead.
#[rstest]
#[case::far_behind(Timestamp::UNIX_EPOCH)]
#[case::far_ahead(at(365 * 86_400))]
fn the_clock_of_a_node_says_nothing_about_how_long_an_entry_stays(#[case] completion_time: Timestamp) {
    let mut object = by_hand(Some(Phase::Succeeded));
    let images = &mut object.status.as_mut().unwrap().image_statuses;
    images.get_mut("nginx").unwrap().tags[0].completion_time = Some(Time(completion_time));
    let mut ends = seen_at(&object, 10);
    ends.observe(&object, at(20));
    let owner = |_: EntryName<'_>, _: &ObjectReference| EntryOwner::Unknown;
    let swept = |seconds| sweep(&object, object.spec.clone(), owner, &ends, at(seconds));
    assert!(stays(&swept(39)));
    assert_eq!(swept(39).next, Some(at(40)));
    assert!(!stays(&swept(40)), "30 s after its end was first seen");
}

#[test]
fn a_hand_written_entry_whose_version_was_raised_waits_for_the_new_pull() {
    let mut object = by_hand(Some(Phase::Succeeded));
    entry_mut(&mut object).unwrap().version += 1;
    assert!(stays(&swept(&object, &[], 1_000_000)));
}

#[test]
fn an_entry_without_its_time_gets_it_and_nothing_else_changes() {
    let mut object = by_hand(None);
    entry_mut(&mut object).unwrap().created_at = None;
    let sweep = swept(&object, &[], 77);
    let mut want = object.clone();
    entry_mut(&mut want).unwrap().created_at = Some(Time(at(77)));
    assert_eq!(sweep.spec, want.spec);
}

#[test]
fn credentials_go_with_the_entry_that_names_them() {
    let mut object = object(&["a"], None);
    entry_mut(&mut object).unwrap().credentials = vec!["used".into()];
    for id in ["used", "left-over"] {
        object.spec.sealed_credentials.push(SealedCredential {
            id: id.into(),
            ..SealedCredential::default()
        });
    }
    let sweep = swept(&object, &[("a", running())], 1);
    let ids: Vec<&str> = sweep
        .spec
        .sealed_credentials
        .iter()
        .map(|sealed| sealed.id.as_str())
        .collect();
    assert_eq!(ids, ["used"]);
}

#[test]
fn edits_of_a_running_job_reach_its_entry() {
    let object = object(&["a"], Some(Phase::Pulling));
    let sandbox = SandboxConfig {
        labels: [("team".to_owned(), "blue".to_owned())].into(),
        ..SandboxConfig::default()
    };
    let edited = Terms {
        timeout_seconds: 1_234,
        when: PullWhen::Always,
        sandbox: Some(sandbox.clone()),
        ..terms()
    };
    let sweep = swept(&object, &[("a", EntryOwner::Running(Some(edited)))], 1);
    let image = &sweep.spec.images["nginx"];
    assert_eq!(image.tags[0].pull_policy.timeout_seconds, 1_234);
    assert_eq!(image.tags[0].image_pull_policy.as_deref(), Some("Always"));
    assert_eq!(image.sandbox_config, Some(sandbox));
    assert_eq!(image.tags[0].version, object.spec.images["nginx"].tags[0].version);
}

fn owners() -> impl Strategy<Value = EntryOwner> {
    prop_oneof![
        Just(EntryOwner::Unknown),
        (0i64..100).prop_map(|noticed| EntryOwner::Gone(at(noticed))),
        Just(running()),
        Just(EntryOwner::Running(None)),
        (0i64..2_000, any::<bool>()).prop_map(|(end, pins)| EntryOwner::Ended { at: at(end), pins }),
    ]
}

proptest! {
    /// A sweep of what a sweep left changes nothing: no write follows a write by itself.
    #[test]
    fn sweeping_twice_is_sweeping_once(first in owners(), second in owners(), phase in 0usize..5, now in 0i64..4_000) {
        let phase = [None, Some(Phase::Waiting), Some(Phase::Pulling), Some(Phase::Succeeded), Some(Phase::Failed)][phase];
        let mut object = object(&["a", "b"], phase);
        let known = [("a", first), ("b", second)];
        let once = swept(&object, &known, now);
        object.spec = once.spec.clone();
        let twice = swept(&object, &known, now);
        prop_assert_eq!(once.spec, twice.spec);
    }

    /// What is due is due at the moment that was announced, and not before.
    #[test]
    fn nothing_changes_before_the_announced_moment(first in owners(), phase in 0usize..3, now in 0i64..4_000, earlier in 1i64..4_000) {
        let phase = [None, Some(Phase::Pulling), Some(Phase::Succeeded)][phase];
        let mut object = object(&["a"], phase);
        let known = [("a", first)];
        let sweep = swept(&object, &known, now);
        object.spec = sweep.spec.clone();
        if let Some(next) = sweep.next {
            let next = next.duration_since(at(0)).as_secs();
            let before = (next - earlier).max(now);
            prop_assert_eq!(&swept(&object, &known, before).spec, &object.spec);
            prop_assert_ne!(&swept(&object, &known, next).spec, &object.spec);
        }
    }
}

#[rstest]
#[case::deleted_within_the_time(&[0, 1], 1)]
#[case::both_at_once(&[5, 5], 6)]
#[case::one_long_before(&[0, 90], 90)]
fn when_the_entry_of_a_deleted_job_leaves_those_deleted_since_leave_with_it(
    #[case] noticed: &[i64],
    #[case] gone: i64,
) {
    let mut object = NodeImage::new("node-1", NodeImageSpec::default());
    for (number, _) in noticed.iter().enumerate() {
        let image = ImageRef::parse(&format!("image-{number}:1")).unwrap();
        let mut spec = object.spec.clone();
        claim::claim(&mut spec, &object, &image, &reference(&number.to_string()), at(0));
        object.spec = spec;
    }
    let owner = |_: EntryName<'_>, reference: &ObjectReference| {
        let number: usize = reference.uid.as_ref().unwrap().parse().unwrap();
        EntryOwner::Gone(at(noticed[number]))
    };
    let before = sweep(
        &object,
        object.spec.clone(),
        owner,
        &HandWrittenEnds::NONE,
        at(noticed[0]),
    );
    assert_eq!(
        (before.spec.images.len(), before.next),
        (noticed.len(), Some(at(noticed[0] + 1)))
    );
    let after = sweep(&object, object.spec.clone(), owner, &HandWrittenEnds::NONE, at(gone));
    assert_eq!((after.spec.images.len(), after.next), (0, None));
}
