//! What is written into a node's NodeImage for a campaign, and what is read back from it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::NodeImage;
use larder_api::contract::{Answer, answer, first_version};
use larder_api::node_image::{ImageTagSpec, ImageTagStatus, NodeImageSpec};
use larder_api::template::SandboxConfig;
use larder_model::{ImageRef, Phase, PullWhen, Reason};

use crate::campaign::whole_seconds;
use crate::view::{ClaimView, Loss};

/// What one campaign asks of one node's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Seconds that one attempt may take.
    pub timeout_seconds: i32,
    /// Retries after the first attempt.
    pub backoff_limit: i32,
    /// Seconds that the entry stays after its last owner ended.
    pub ttl_seconds: i32,
    /// When the campaign ends at the latest.
    pub deadline: Option<Timestamp>,
    /// Seconds for one order, from the moment when it is written.
    pub seconds_per_order: Option<i64>,
    /// Whether an image that is there is a success.
    pub when: PullWhen,
    /// Labels and annotations for the runtime.
    pub sandbox: Option<SandboxConfig>,
    /// Whether the image is pinned.
    pub pin: bool,
    /// Of the entries that wait on the node, those with a higher priority start first.
    pub priority: i32,
}

/// Claims an image for a campaign, or claims it anew. The entry's rules follow in
/// [`sweep`](crate::retention::sweep).
pub fn claim(spec: &mut NodeImageSpec, old: &NodeImage, image: &ImageRef, owner: &ObjectReference, now: Timestamp) {
    let tag = image.tag_text();
    let tags = &mut spec.images.entry(image.name().to_owned()).or_default().tags;
    let position = tags.binary_search_by(|entry| entry.tag.as_str().cmp(&tag));
    let place = match position {
        Ok(place) => place,
        // A list that somebody wrote by hand need not be sorted.
        Err(place) => tags.iter().position(|entry| entry.tag == tag).unwrap_or_else(|| {
            let version = first_version(old, image.name(), &tag);
            tags.insert(
                place,
                ImageTagSpec {
                    tag,
                    version,
                    ..ImageTagSpec::default()
                },
            );
            place
        }),
    };
    let entry = &mut tags[place];
    let before = old.entry(image.name(), &entry.tag).map(|entry| entry.version);
    entry.claim(owner.clone(), before);
    // Somebody asked what a pull would do; now it is to be done.
    entry.dry_run = false;
    entry.created_at = Some(Time(whole_seconds(now)));
}

/// Takes a campaign off an image. The entry goes with its last owner.
pub fn release(spec: &mut NodeImageSpec, image: &ImageRef, uid: &str) {
    let tag = image.tag_text();
    let Some(wanted) = spec.images.get_mut(image.name()) else {
        return;
    };
    wanted.tags.retain_mut(|entry| entry.tag != tag || !entry.release(uid));
    if wanted.tags.is_empty() {
        spec.images.remove(image.name());
    }
}

/// Makes an entry's rules the most generous of its owners'. `stakes` are the terms of the owners that are running, each
/// with whether the node still owes it an answer; `others` says that there are owners whose terms nobody knows.
pub(crate) fn tune(entry: &mut ImageTagSpec, stakes: &[(&Terms, bool)], others: bool) {
    let terms = || stakes.iter().map(|(terms, _)| *terms);
    if stakes.is_empty() {
        return;
    }
    let now = entry.pull_policy.clone();
    let most = |own: fn(&Terms) -> i32, now: i32| {
        let wanted = terms().map(own);
        wanted.chain(others.then_some(now)).max().unwrap_or(now)
    };
    entry.pull_policy.timeout_seconds = most(|terms| terms.timeout_seconds, now.timeout_seconds);
    entry.pull_policy.backoff_limit = most(|terms| terms.backoff_limit, now.backoff_limit);
    entry.pull_policy.ttl_seconds_after_finished = most(|terms| terms.ttl_seconds, now.ttl_seconds_after_finished);
    let created = entry.created_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let bounds: Option<Vec<i64>> = terms().map(|terms| seconds_allowed(terms, created)).collect();
    let unbounded_stranger = others && now.active_deadline_seconds.is_none();
    entry.pull_policy.active_deadline_seconds = bounds.filter(|_| !unbounded_stranger).and_then(|bounds| {
        bounds
            .into_iter()
            .chain(now.active_deadline_seconds.filter(|_| others))
            .max()
    });
    let mut owed = stakes
        .iter()
        .filter(|(_, owed)| *owed)
        .map(|(terms, _)| terms.when)
        .peekable();
    if owed.peek().is_some() {
        let always = owed.any(|when| when == PullWhen::Always);
        let when = if always {
            PullWhen::Always
        } else {
            PullWhen::IfNotPresent
        };
        entry.image_pull_policy = Some(when.as_str().to_owned());
    }
    // An entry that is answered keeps what it has: nothing waits, and a write would change nothing.
    let owed = stakes.iter().filter(|(_, owed)| *owed);
    if let Some(highest) = owed.map(|(terms, _)| terms.priority).max() {
        entry.priority = if others { highest.max(entry.priority) } else { highest };
    }
}

/// Seconds from the writing of an entry's version until a campaign stops waiting for it; None for ever. Whichever is over
/// first: the campaign, or the time for one order.
fn seconds_allowed(terms: &Terms, created: Timestamp) -> Option<i64> {
    let until = terms.deadline.map(|deadline| {
        let left = deadline.duration_since(created);
        left.as_secs() + i64::from(0 < left.subsec_nanos())
    });
    let bounds = [until, terms.seconds_per_order].into_iter().flatten();
    bounds.min().map(|seconds| seconds.max(1))
}

/// What a node's NodeImage says about a campaign's claim on an image.
pub fn claim_view(object: &NodeImage, image: &ImageRef, uid: &str) -> Option<ClaimView> {
    let tag = image.tag_text();
    let entry = object.entry(image.name(), &tag)?;
    let version = entry.claim_version(uid)?;
    let status = object.result(image.name(), &tag);
    let said = answer(version, status);
    let created = object.metadata.creation_timestamp.as_ref();
    let handed_out = entry
        .created_at
        .as_ref()
        .or(created)
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let current = status.filter(|status| version <= status.version() || said == Answer::Succeeded);
    Some(ClaimView {
        handed_out,
        answer: said,
        ended: current.and_then(|status| ended(status, said)),
        bytes_total: current.and_then(|status| status.bytes_total),
        bytes_done: current.and_then(|status| status.bytes_done),
        again: false,
        loss: status.filter(|_| said == Answer::Succeeded).and_then(loss),
    })
}

/// What a node does about an image that it no longer has. A pull of a later version than the one that succeeded is a
/// refresh, and no loss.
fn loss(status: &ImageTagStatus) -> Option<Loss> {
    let succeeded = status.last_succeeded.as_ref()?;
    if succeeded.version != status.version() {
        return None;
    }
    match status.phase() {
        Phase::Succeeded => None,
        Phase::Pulling => Some(Loss::Pulling),
        Phase::Waiting => Some(Loss::Waiting(status.reason())),
        Phase::Failed => Some(Loss::Failed(status.reason().unwrap_or(Reason::Internal))),
    }
}

fn ended(status: &ImageTagStatus, said: Answer) -> Option<Timestamp> {
    let success = status
        .last_succeeded
        .as_ref()
        .and_then(|success| success.completion_time.as_ref());
    let time = match said {
        Answer::Succeeded if matches!(loss(status), Some(Loss::Failed(_))) => status.completion_time.as_ref(),
        Answer::Succeeded => success.or(status.completion_time.as_ref()),
        Answer::Failed(_) => status.completion_time.as_ref(),
        Answer::Unanswered | Answer::Waiting(_) | Answer::Pulling => None,
    };
    time.map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::{at, campaign};
    use larder_api::node_image::{ImageStatus, LastSucceeded, NodeImageStatus};
    use rstest::rstest;

    fn owner(uid: &str) -> ObjectReference {
        ObjectReference {
            uid: Some(uid.into()),
            ..ObjectReference::default()
        }
    }

    fn image(text: &str) -> ImageRef {
        ImageRef::parse(text).unwrap()
    }

    fn with_status(mut object: NodeImage, version: i64, phase: Phase) -> NodeImage {
        let tag = ImageTagStatus {
            tag: "1".into(),
            version: Some(version),
            phase: phase.as_str().into(),
            ..ImageTagStatus::default()
        };
        let status = NodeImageStatus {
            image_statuses: [("nginx".to_owned(), ImageStatus { tags: vec![tag] })].into(),
            ..NodeImageStatus::default()
        };
        object.status = Some(status);
        object
    }

    #[test]
    fn a_claim_turns_a_question_into_an_order() {
        let mut asked = claimed(&NodeImage::default(), "nginx:1", "a", 0);
        let entry = &mut asked.spec.images.get_mut("nginx").unwrap().tags[0];
        (entry.dry_run, entry.owner_references, entry.claims) = (true, vec![], vec![]);
        let before = entry.version;
        let after = claimed(&asked, "nginx:1", "b", 1);
        let entry = after.entry("nginx", "1").unwrap();
        assert!(!entry.dry_run);
        assert!(
            before < entry.version,
            "the answer to the question is no answer to the job"
        );
    }

    fn claimed(object: &NodeImage, reference: &str, uid: &str, now: i64) -> NodeImage {
        let mut after = object.clone();
        claim(&mut after.spec, object, &image(reference), &owner(uid), at(now));
        after
    }

    #[test]
    fn a_claim_makes_a_sorted_entry_that_no_old_result_answers() {
        let empty = with_status(NodeImage::default(), 4, Phase::Succeeded);
        let object = claimed(&claimed(&empty, "nginx:2", "b", 0), "nginx:1", "a", 1);
        let tags: Vec<&str> = object.spec.images["nginx"]
            .tags
            .iter()
            .map(|entry| entry.tag.as_str())
            .collect();
        assert_eq!(tags, ["1", "2"]);
        assert_eq!(object.entry("nginx", "1").unwrap().version, 5);
        let view = claim_view(&object, &image("nginx:1"), "a").unwrap();
        assert_eq!((view.answer, view.handed_out), (Answer::Unanswered, at(1)));
    }

    #[test]
    fn a_second_claim_asks_anew_and_takes_nothing_from_the_first() {
        let first = claimed(&NodeImage::default(), "nginx:1", "a", 0);
        let served = with_status(first, 0, Phase::Succeeded);
        let mut second = claimed(&served, "nginx:1", "b", 9);
        second
            .status
            .as_mut()
            .unwrap()
            .image_statuses
            .get_mut("nginx")
            .unwrap()
            .tags[0]
            .last_succeeded = Some(larder_api::node_image::LastSucceeded::default());
        let answer_of = |uid| claim_view(&second, &image("nginx:1"), uid).unwrap().answer;
        assert_eq!(
            (answer_of("a"), answer_of("b")),
            (Answer::Succeeded, Answer::Unanswered)
        );
    }

    #[test]
    fn a_claim_on_a_hand_written_entry_waits_for_a_new_answer() {
        let mut by_hand = with_status(NodeImage::default(), 0, Phase::Succeeded);
        let entry = ImageTagSpec {
            tag: "1".into(),
            ..ImageTagSpec::default()
        };
        by_hand.spec.images.entry("nginx".into()).or_default().tags.push(entry);
        let object = claimed(&by_hand, "nginx:1", "a", 0);
        assert_eq!(
            claim_view(&object, &image("nginx:1"), "a").unwrap().answer,
            Answer::Unanswered
        );
    }

    #[test]
    fn a_digest_is_an_entry_like_any_other() {
        let digest = format!("nginx@sha256:{}", "a".repeat(64));
        let object = claimed(&NodeImage::default(), &digest, "a", 0);
        assert!(claim_view(&object, &image(&digest), "a").is_some());
    }

    #[test]
    fn an_entry_goes_with_its_last_owner() {
        let mut object = claimed(&claimed(&NodeImage::default(), "nginx:1", "a", 0), "nginx:1", "b", 1);
        release(&mut object.spec, &image("nginx:1"), "a");
        assert!(object.entry("nginx", "1").is_some());
        release(&mut object.spec, &image("nginx:1"), "b");
        assert!(object.spec.images.is_empty());
    }

    #[rstest]
    #[case::failed(Phase::Failed, Answer::Failed(Reason::Internal))]
    #[case::pulling(Phase::Pulling, Answer::Pulling)]
    fn answers_are_read_back(#[case] phase: Phase, #[case] want: Answer) {
        let object = with_status(claimed(&NodeImage::default(), "nginx:1", "a", 0), 0, phase);
        assert_eq!(claim_view(&object, &image("nginx:1"), "a").unwrap().answer, want);
    }

    fn terms(timeout: i32, deadline: Option<i64>, when: PullWhen) -> Terms {
        let mut terms = campaign(1).terms("node-1", at(0));
        terms.timeout_seconds = timeout;
        terms.deadline = deadline.map(at);
        terms.when = when;
        terms
    }

    fn tuned(stakes: &[(&Terms, bool)], others: bool) -> ImageTagSpec {
        let mut entry = ImageTagSpec {
            created_at: Some(Time(at(10))),
            ..ImageTagSpec::default()
        };
        entry.pull_policy.timeout_seconds = 5_000;
        tune(&mut entry, stakes, others);
        entry
    }

    #[rstest]
    #[case::one(&[(60, Some(100))], false, 60, Some(90))]
    #[case::most_generous(&[(60, Some(100)), (30, Some(200))], false, 60, Some(190))]
    #[case::one_without_deadline(&[(60, Some(100)), (90, None)], false, 90, None)]
    #[case::past_deadline(&[(60, Some(3))], false, 60, Some(1))]
    #[case::owners_nobody_knows_keep_what_is_there(&[(60, Some(100))], true, 5_000, None)]
    fn rules_are_the_most_generous_of_the_owners(
        #[case] owners: &[(i32, Option<i64>)],
        #[case] others: bool,
        #[case] timeout: i32,
        #[case] deadline: Option<i64>,
    ) {
        let all: Vec<Terms> = owners
            .iter()
            .map(|(timeout, deadline)| terms(*timeout, *deadline, PullWhen::IfNotPresent))
            .collect();
        let stakes: Vec<(&Terms, bool)> = all.iter().map(|terms| (terms, true)).collect();
        let policy = tuned(&stakes, others).pull_policy;
        assert_eq!(
            (policy.timeout_seconds, policy.active_deadline_seconds),
            (timeout, deadline)
        );
    }

    #[rstest]
    #[case::the_order_is_over_first(100, 30, 30)]
    #[case::the_campaign_is_over_first(25, 30, 15)]
    fn a_campaign_may_bound_each_order_and_itself(#[case] deadline: i64, #[case] order: i64, #[case] want: i64) {
        let mut both = terms(60, Some(deadline), PullWhen::IfNotPresent);
        both.seconds_per_order = Some(order);
        let policy = tuned(&[(&both, true)], false).pull_policy;
        assert_eq!(policy.active_deadline_seconds, Some(want));
    }

    #[rstest]
    #[case::one(&[(5, true)], false, 5)]
    #[case::below_none(&[(-5, true)], false, -5)]
    #[case::highest_of_those_that_wait(&[(1, true), (7, true), (9, false)], false, 7)]
    #[case::nobody_waits(&[(5, false)], false, 3)]
    #[case::owners_nobody_knows_keep_what_is_there(&[(1, true)], true, 3)]
    fn priority_is_the_highest_of_the_owners_that_wait(
        #[case] owners: &[(i32, bool)],
        #[case] others: bool,
        #[case] want: i32,
    ) {
        let all: Vec<(Terms, bool)> = owners
            .iter()
            .map(|(priority, owed)| {
                let mut terms = terms(1, None, PullWhen::IfNotPresent);
                terms.priority = *priority;
                (terms, *owed)
            })
            .collect();
        let stakes: Vec<(&Terms, bool)> = all.iter().map(|(terms, owed)| (terms, *owed)).collect();
        let mut entry = ImageTagSpec {
            priority: 3,
            ..ImageTagSpec::default()
        };
        tune(&mut entry, &stakes, others);
        assert_eq!(entry.priority, want);
    }

    #[rstest]
    #[case::an_owner_that_waits_wants_a_pull(true, false, Some("Always"))]
    #[case::the_one_that_wanted_it_has_it(false, true, Some("IfNotPresent"))]
    #[case::nobody_waits(false, false, None)]
    fn who_waits_decides_whether_to_pull(
        #[case] always_waits: bool,
        #[case] other_waits: bool,
        #[case] want: Option<&str>,
    ) {
        let (always, other) = (terms(1, None, PullWhen::Always), terms(1, None, PullWhen::IfNotPresent));
        let entry = tuned(&[(&always, always_waits), (&other, other_waits)], false);
        assert_eq!(entry.image_pull_policy.as_deref(), want);
    }

    #[rstest]
    #[case::there(1, Phase::Succeeded, None, None)]
    #[case::pulled_again(1, Phase::Pulling, None, Some(Loss::Pulling))]
    #[case::waits(1, Phase::Waiting, Some(Reason::NoSpace), Some(Loss::Waiting(Some(Reason::NoSpace))))]
    #[case::failed(1, Phase::Failed, Some(Reason::Dns), Some(Loss::Failed(Reason::Dns)))]
    #[case::refreshed(2, Phase::Pulling, None, None)]
    fn a_loss_is_told_from_a_refresh(
        #[case] version: i64,
        #[case] phase: Phase,
        #[case] reason: Option<Reason>,
        #[case] want: Option<Loss>,
    ) {
        let status = ImageTagStatus {
            version: Some(version),
            phase: phase.as_str().into(),
            reason: reason.map(|reason| reason.as_str().to_owned()),
            last_succeeded: Some(LastSucceeded {
                version: 1,
                ..LastSucceeded::default()
            }),
            ..ImageTagStatus::default()
        };
        assert_eq!(loss(&status), want);
    }
}
