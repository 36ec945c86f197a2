use proptest::prelude::*;
use rstest::rstest;

use larder_api::contract::NODE_IMAGE_BYTES_MAX;

use super::*;
use crate::view::samples::{at, campaign};

const NODE: &str = "node";

/// A campaign for `nginx:1` of the job with this uid.
fn job(uid: &str) -> Campaign {
    let mut campaign = campaign(1);
    campaign.owner.uid = Some(uid.to_owned());
    campaign
}

/// A NodeImage in which these jobs have claimed `nginx:1`, one after another.
fn claimed_by(uids: &[&str]) -> NodeImage {
    let mut object = NodeImage::default();
    for uid in uids {
        let campaign = job(uid);
        let before = object.clone();
        let task = campaign.tasks.of(NODE).unwrap();
        task.claim(&mut object.spec, &before, &campaign.owner, at(0));
    }
    for entry in object.spec.images.values_mut().flat_map(|image| &mut image.tags) {
        entry.progress_seconds = Some(2);
    }
    object
}

fn claim() -> Order {
    Order::Claim {
        before: BTreeMap::new(),
    }
}

/// What is known of a job, without its campaign.
#[derive(Clone, Copy, Debug)]
enum Known {
    Unknown,
    Gone(i64),
    Ended { at: i64, pins: bool },
    Selects,
    LeavesOut,
}

impl Known {
    fn state(self, campaign: &Campaign) -> OwnerState<'_> {
        let running = |selected| OwnerState::Running {
            campaign,
            started: at(0),
            selected,
        };
        match self {
            Self::Unknown => OwnerState::Unknown,
            Self::Gone(noticed) => OwnerState::Gone(at(noticed)),
            Self::Ended { at: ended, pins } => OwnerState::Ended { at: at(ended), pins },
            Self::Selects => running(true),
            Self::LeavesOut => running(false),
        }
    }
}

/// The desired spec of a NodeImage of so many bytes, 100 seconds after the beginning.
fn desired(object: &NodeImage, bytes: usize, jobs: &[(&str, Known, Option<Order>)]) -> DesiredSpec {
    desired_by(object, bytes, jobs, job)
}

/// The same for jobs that ask for something else.
fn desired_by(
    object: &NodeImage,
    bytes: usize,
    jobs: &[(&str, Known, Option<Order>)],
    job: impl Fn(&str) -> Campaign,
) -> DesiredSpec {
    let campaigns: Vec<Campaign> = jobs.iter().map(|(uid, ..)| job(uid)).collect();
    let owners = jobs.iter().zip(&campaigns);
    desired_spec(&NodeSpecInput {
        node: NODE,
        object,
        bytes,
        occupancy: None,
        owners: owners
            .map(|((uid, known, _), campaign)| (*uid, known.state(campaign)))
            .collect(),
        orders: jobs
            .iter()
            .filter_map(|(uid, _, order)| Some((*uid, order.as_ref()?)))
            .collect(),
        withheld: BTreeSet::new(),
        closed: BTreeSet::new(),
        progress_seconds: Some(2),
        credentials: None,
        hand_written_ends: &HandWrittenEnds::NONE,
        now: at(100),
    })
}

/// The jobs that have a claim on `nginx:1`.
fn claims_in(spec: &NodeImageSpec) -> Vec<&str> {
    let entries = spec.images.values().flat_map(|image| &image.tags);
    entries
        .flat_map(|entry| &entry.claims)
        .map(|claim| claim.uid.as_str())
        .collect()
}

#[rstest]
#[case::a_claim(&[], 0, &[("a", Known::Selects, Some(claim()))], &["a"], &["a"], &[])]
#[case::a_claim_beside_another(&["a"], 0, &[("a", Known::Selects, None), ("b", Known::Selects, Some(claim()))], &["a", "b"], &["b"], &[])]
#[case::a_claim_of_a_job_that_leaves_the_node_out(&["b"], 0, &[("a", Known::LeavesOut, Some(claim())), ("b", Known::Selects, None)], &["b"], &[], &[("a", Reason::Canceled)])]
#[case::a_claim_of_a_job_that_ended(&[], 0, &[("a", Known::Ended { at: 99, pins: false }, Some(claim()))], &[], &[], &[("a", Reason::Canceled)])]
#[case::a_claim_without_room(&[], NODE_IMAGE_BYTES_MAX, &[("a", Known::Selects, Some(claim()))], &[], &[], &[("a", Reason::NodeFull)])]
#[case::one_more_owner_without_room(&["a"], NODE_IMAGE_BYTES_MAX, &[("a", Known::Selects, None), ("b", Known::Selects, Some(claim()))], &["a"], &[], &[("b", Reason::NodeFull)])]
#[case::a_withdrawal(&["a"], 0, &[("a", Known::Selects, Some(Order::Withdraw))], &[], &["a"], &[])]
#[case::a_withdrawal_beside_another(&["a", "b"], 0, &[("a", Known::Selects, Some(Order::Withdraw)), ("b", Known::Selects, None)], &["b"], &["a"], &[])]
#[case::an_owner_that_nobody_knows(&["a"], 0, &[("a", Known::Unknown, None)], &["a"], &[], &[])]
#[case::an_owner_that_was_just_deleted(&["a"], 0, &[("a", Known::Gone(100), None)], &["a"], &[], &[])]
#[case::an_owner_that_was_deleted(&["a", "b"], 0, &[("a", Known::Gone(90), None), ("b", Known::Selects, None)], &["b"], &[], &[])]
#[case::an_owner_that_leaves_the_node_out(&["a"], 0, &[("a", Known::LeavesOut, None)], &[], &[], &[])]
#[case::an_owner_that_ended_just_now(&["a"], 0, &[("a", Known::Ended { at: 99, pins: false }, None)], &["a"], &[], &[])]
#[case::an_owner_that_ended_without_an_answer(&["a"], 0, &[("a", Known::Ended { at: 0, pins: true }, None)], &[], &[], &[])]
fn a_spec_follows_orders_and_owners(
    #[case] claimed: &[&str],
    #[case] bytes: usize,
    #[case] jobs: &[(&str, Known, Option<Order>)],
    #[case] claims: &[&str],
    #[case] carried_out: &[&str],
    #[case] refused: &[(&str, Reason)],
) {
    let desired = desired(&claimed_by(claimed), bytes, jobs);
    assert_eq!(claims_in(&desired.spec), claims);
    assert_eq!(desired.carried_out, carried_out);
    let refused: Vec<(String, Reason)> = refused
        .iter()
        .map(|(uid, reason)| ((*uid).to_owned(), *reason))
        .collect();
    assert_eq!(desired.refused, refused);
}

#[test]
fn entries_refer_to_the_credentials_that_their_owners_may_use() {
    let mut object = claimed_by(&["a"]);
    object.spec.images.get_mut("nginx").unwrap().tags[0].credentials = vec!["old".to_owned()];
    let campaign = job("a");
    let with = |credentials| {
        let input = NodeSpecInput {
            node: NODE,
            object: &object,
            bytes: 0,
            occupancy: None,
            owners: [("a", Known::Selects.state(&campaign))].into(),
            orders: Vec::new(),
            withheld: BTreeSet::new(),
            closed: BTreeSet::new(),
            progress_seconds: None,
            credentials,
            hand_written_ends: &HandWrittenEnds::NONE,
            now: at(100),
        };
        desired_spec(&input).spec.images["nginx"].tags[0].credentials.clone()
    };
    let key = ("nginx".to_owned(), "1".to_owned());
    let new = Credentials::Ids([("new".to_owned(), 100)].into());
    assert_eq!(with(Some([(key.clone(), new)].into())), ["new"]);
    assert_eq!(with(Some([(key, Credentials::NotKnown)].into())), ["old"]);
    assert_eq!(with(None), ["old"]);
}

/// Without the login that it needs, a node would fail for good.
#[test]
fn nothing_is_claimed_whose_credentials_are_withheld() {
    let object = claimed_by(&["a"]);
    let campaigns = [job("a"), job("b")];
    let order = claim();
    let desired = desired_spec(&NodeSpecInput {
        node: NODE,
        object: &object,
        hand_written_ends: &HandWrittenEnds::NONE,
        bytes: 0,
        owners: ["a", "b"]
            .into_iter()
            .zip(campaigns.iter().map(|campaign| Known::Selects.state(campaign)))
            .collect(),
        orders: vec![("b", &order)],
        withheld: ["b"].into(),
        closed: BTreeSet::new(),
        progress_seconds: None,
        credentials: None,
        occupancy: None,
        now: at(100),
    });
    assert_eq!(claims_in(&desired.spec), ["a"], "what was claimed before stays");
    assert_eq!(desired.refused, [("b".to_owned(), Reason::NodePolicyNotEnforced)]);
}

#[test]
fn nothing_is_claimed_for_a_job_whose_windows_have_closed() {
    let object = claimed_by(&["a"]);
    let campaigns = [job("a"), job("b")];
    let (claim, withdraw) = (claim(), Order::Withdraw);
    let desired = desired_spec(&NodeSpecInput {
        node: NODE,
        object: &object,
        hand_written_ends: &HandWrittenEnds::NONE,
        bytes: 0,
        owners: ["a", "b"]
            .into_iter()
            .zip(campaigns.iter().map(|campaign| Known::Selects.state(campaign)))
            .collect(),
        orders: vec![("a", &withdraw), ("b", &claim)],
        withheld: BTreeSet::new(),
        closed: ["a", "b"].into(),
        progress_seconds: None,
        credentials: None,
        occupancy: None,
        now: at(100),
    });
    assert!(
        claims_in(&desired.spec).is_empty(),
        "what is taken back leaves at any time"
    );
    assert_eq!(desired.refused, [("b".to_owned(), Reason::Canceled)]);
}

fn known() -> impl Strategy<Value = Known> {
    prop_oneof![
        Just(Known::Unknown),
        (0i64..=100).prop_map(Known::Gone),
        (0i64..=100, any::<bool>()).prop_map(|(at, pins)| Known::Ended { at, pins }),
        Just(Known::Selects),
        Just(Known::LeavesOut),
    ]
}

fn orders() -> impl Strategy<Value = Option<Order>> {
    prop_oneof![Just(None), Just(Some(claim())), Just(Some(Order::Withdraw))]
}

proptest! {
    /// Otherwise the controller would write the same NodeImage again and again.
    #[test]
    fn what_was_written_asks_for_no_second_write(a in (known(), orders()), b in (known(), orders()), was_claimed in any::<bool>()) {
        let before = claimed_by(if was_claimed { &["a", "b"] } else { &[] });
        let first = desired(&before, 0, &[("a", a.0, a.1.clone()), ("b", b.0, b.1.clone())]);
        let written = NodeImage { spec: first.spec.clone(), ..before };
        let second = desired(&written, 0, &[("a", a.0, None), ("b", b.0, None)]);
        prop_assert_eq!(second.spec, first.spec);
    }

    #[test]
    fn an_order_is_carried_out_or_refused(state in known(), order in orders()) {
        let first = desired(&NodeImage::default(), 0, &[("a", state, order.clone())]);
        prop_assert_eq!(usize::from(order.is_some()), first.carried_out.len() + first.refused.len());
        if let Some(order @ Order::Claim { .. }) = order {
            let (object, campaign) = (NodeImage { spec: first.spec, ..NodeImage::default() }, job("a"));
            let task = campaign.tasks.of(NODE).map(|task| &**task);
            prop_assert_eq!(order.is_carried_out(task, Some(&object), "a"), first.refused.is_empty());
        }
    }
}

/// A campaign of the job with this uid for an image of its own.
fn ranked(uid: &str, priority: i32) -> Campaign {
    let image = crate::task::TaskImage::new(ImageRef::parse(&format!("{uid}:1")).unwrap(), Vec::new());
    Campaign {
        tasks: crate::task::Tasks::shared(NodeTask::new(vec![image], Vec::new())),
        priority,
        ..job(uid)
    }
}

#[rstest]
#[case::the_first([0, 0], "a")]
#[case::the_higher_priority([0, 1], "b")]
#[case::not_the_lower_priority([-1, 0], "b")]
fn room_for_one_is_for(#[case] priorities: [i32; 2], #[case] want: &str) {
    let both = ["a", "b"].map(|uid| (uid, Known::Selects, Some(claim())));
    let bytes = NODE_IMAGE_BYTES_MAX - 4 * 1_024;
    let found = desired_by(&NodeImage::default(), bytes, &both, |uid| {
        ranked(uid, priorities[usize::from(uid == "b")])
    });
    assert_eq!(found.carried_out, [want]);
    assert_eq!(found.refused.len(), 1);
}

#[rstest]
#[case::none(0, false)]
#[case::some(7, true)]
#[case::below_none(-7, true)]
fn a_priority_is_written_unless_it_is_zero(#[case] priority: i32, #[case] is_written: bool) {
    let one = [("a", Known::Selects, Some(claim()))];
    let found = desired_by(&NodeImage::default(), 0, &one, |uid| ranked(uid, priority));
    let entry = serde_json::to_value(&found.spec.images["a"].tags[0]).unwrap();
    assert_eq!(entry.get("priority").is_some(), is_written, "{entry}");
}
