//! What a node's answers come to. Pure: what was answered in, a row out.

use larder_api::NodeImage;
use larder_model::{ByteSize, Check, Phase, Reason};
use larder_planner::node::{Measured, Promise, judge};
use serde::Serialize;

/// Used share of the image filesystem at which the kubelet cleans up, unless it is told otherwise. The agents judge each
/// image by their own; this is for several images together.
const GC_THRESHOLD: u8 = 85;

/// Added to a failure that was reported before this plan asked.
const EARLIER: &str = "This is the answer to an earlier job that is still there; delete that job to ask the node anew.";

/// One node. Field names are the output of `-o json`, on which scripts rely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) node: String,
    pub(super) verdict: Verdict,
    pub(super) bytes_to_pull: Option<u64>,
    pub(super) bytes_present: Option<u64>,
    pub(super) bytes_free: Option<u64>,
    pub(super) reason: Option<String>,
    /// What the node said to it.
    #[serde(skip)]
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Verdict {
    Fits,
    Fails,
    Unknown,
}

impl Verdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Verdict::Fits => "Fits",
            Verdict::Fails => "Fails",
            Verdict::Unknown => "Unknown",
        }
    }
}

/// What a node said to one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Bytes there and bytes in all. An image that was there when it was ordered has never been measured.
    pub(super) bytes: Option<(u64, u64)>,
    /// Why a pull would fail.
    pub(super) trouble: Option<Reason>,
    pub(super) message: String,
    /// It is the result of an order that the node had already, and not of this question.
    pub(super) earlier: bool,
}

/// What a node said to all images that it was asked for, and the room that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) images: Vec<Answer>,
    /// Size and free bytes of the image filesystem.
    pub(super) image_fs: Option<(u64, u64)>,
}

impl Answer {
    /// What a NodeImage says to the question of this version; None while it says nothing.
    pub(super) fn in_status(node: &NodeImage, name: &str, tag: &str, version: i64) -> Option<Self> {
        let result = node.result(name, tag).filter(|result| version <= result.version())?;
        let bytes = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let total = bytes(result.bytes_total);
        result.phase().is_final().then(|| Self {
            bytes: total.map(|total| (bytes(result.bytes_done).unwrap_or(0).min(total), total)),
            trouble: (result.phase() == Phase::Failed).then(|| result.reason().unwrap_or(Reason::Internal)),
            message: result.message.clone().unwrap_or_default(),
            earlier: node.entry(name, tag).is_some_and(|entry| !entry.dry_run),
        })
    }
}

impl Row {
    /// A node that could not be asked.
    pub(super) fn blocked(node: &str, reason: Reason, message: &str) -> Self {
        Self {
            node: node.to_owned(),
            verdict: Verdict::Unknown,
            bytes_to_pull: None,
            bytes_present: None,
            bytes_free: None,
            reason: Some(reason.as_str().to_owned()),
            message: message.to_owned(),
        }
    }

    /// Whether the node was asked and said nothing.
    pub(super) fn is_silent(&self) -> bool {
        self.verdict == Verdict::Unknown && self.reason.as_deref() == Some(Reason::Unresponsive.as_str())
    }
}

/// The row of a node that was asked for this many images. `login_missing`: a denial says nothing, the job would bring a
/// login that the node was not asked with.
pub(super) fn row(node: &str, answers: Option<&Answers>, asked: usize, login_missing: bool) -> Row {
    let Some(answers) = answers.filter(|answers| answers.images.len() == asked) else {
        let free = answers.and_then(|answers| answers.image_fs).map(|(_, free)| free);
        return Row {
            bytes_free: free,
            ..Row::blocked(node, Reason::Unresponsive, Reason::Unresponsive.advice())
        };
    };
    let known = || answers.images.iter().filter_map(|answer| answer.bytes);
    let missing: u64 = known().map(|(done, total)| total - done).sum();
    let all_known = known().count() == asked;
    let failing = answers.images.iter().find(|answer| answer.trouble.is_some());
    let (trouble, message) = match failing {
        Some(answer) if answer.earlier => (
            answer.trouble,
            format!("{} {EARLIER}", answer.message).trim().to_owned(),
        ),
        Some(answer) => (answer.trouble, answer.message.clone()),
        None => match no_room_for_all(answers, missing) {
            Some(why) => (
                Some(Reason::CheckFailed),
                format!("All images together do not fit: {why}."),
            ),
            None => (None, String::new()),
        },
    };
    // A question that failed before the sizes were read leaves the bytes to pull unknown.
    let unmeasured = answers
        .images
        .iter()
        .any(|answer| answer.trouble.is_some() && answer.bytes.is_none_or(|(_, total)| total == 0));
    let verdict = match trouble {
        None => Verdict::Fits,
        Some(Reason::AuthDenied) if login_missing => Verdict::Unknown,
        Some(_) => Verdict::Fails,
    };
    Row {
        node: node.to_owned(),
        verdict,
        bytes_to_pull: (!unmeasured).then_some(missing),
        bytes_present: all_known.then(|| known().map(|(done, _)| done).sum()),
        bytes_free: answers.image_fs.map(|(_, free)| free),
        reason: trouble.map(|reason| reason.as_str().to_owned()),
        message,
    }
}

/// Each image may fit by itself, and all of them not.
fn no_room_for_all(answers: &Answers, missing: u64) -> Option<String> {
    let (capacity, free) = answers.image_fs?;
    let measured = Measured {
        cpu: None,
        memory: None,
        image_fs: Some((ByteSize(capacity), ByteSize(free))),
        missing: Some(ByteSize(missing)),
        ..Measured::default()
    };
    let promise = Promise {
        bytes: ByteSize::ZERO,
        gc_threshold: GC_THRESHOLD,
    };
    let several = 1 < answers.images.len() && 0 < missing;
    let judged = several.then(|| judge(&[Check::Disk], &measured, promise))?;
    judged.err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const GIB: u64 = 1 << 30;

    fn answer(done: u64, total: u64, trouble: Option<Reason>) -> Answer {
        Answer {
            bytes: Some((done, total)),
            trouble,
            message: String::new(),
            earlier: false,
        }
    }

    /// A node that has failed at the image before, for a job or for the question itself.
    #[rstest]
    #[case::order(false, true)]
    #[case::question(true, false)]
    fn an_earlier_failure_is_called_that(#[case] dry_run: bool, #[case] earlier: bool) {
        let node: NodeImage = serde_json::from_value(serde_json::json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "a"},
            "spec": {"images": {"nginx": {"tags": [{"tag": "1", "version": 1, "dryRun": dry_run, "pullPolicy": {"ttlSecondsAfterFinished": 9}}]}}},
            "status": {"imageStatuses": {"nginx": {"tags": [
                {"tag": "1", "version": 1, "phase": "Failed", "reason": "Unreachable", "message": "No answer."},
            ]}}},
        }))
        .unwrap();
        let answer = Answer::in_status(&node, "nginx", "1", 1).unwrap();
        let row = row("a", Some(&answers(&[answer])), 1, false);
        assert_eq!((row.verdict, row.bytes_to_pull), (Verdict::Fails, None));
        assert!(row.message.starts_with("No answer."), "{}", row.message);
        assert_eq!(row.message.contains("delete that job"), earlier, "{}", row.message);
    }

    fn answers(images: &[Answer]) -> Answers {
        Answers {
            images: images.to_vec(),
            image_fs: Some((100 * GIB, 60 * GIB)),
        }
    }

    #[rstest]
    #[case::fits(&[answer(1, 3, None)], false, Verdict::Fits, Some(2), None)]
    #[case::fails(&[answer(0, 3, Some(Reason::CheckFailed))], false, Verdict::Fails, Some(3), Some("CheckFailed"))]
    #[case::denied(&[answer(0, 0, Some(Reason::AuthDenied))], false, Verdict::Fails, None, Some("AuthDenied"))]
    #[case::denied_without_the_login(&[answer(0, 0, Some(Reason::AuthDenied))], true, Verdict::Unknown, None, Some("AuthDenied"))]
    #[case::unreachable(&[Answer { bytes: None, ..answer(0, 0, Some(Reason::Unreachable)) }], false, Verdict::Fails, None, Some("Unreachable"))]
    #[case::several_fit(&[answer(0, GIB, None), answer(0, GIB, None)], false, Verdict::Fits, Some(2 * GIB), None)]
    #[case::each_fits_but_not_all(&[answer(0, 12 * GIB, None), answer(0, 12 * GIB, None)], false, Verdict::Fails, Some(24 * GIB), Some("CheckFailed"))]
    fn verdicts(
        #[case] images: &[Answer],
        #[case] login_missing: bool,
        #[case] verdict: Verdict,
        #[case] to_pull: Option<u64>,
        #[case] reason: Option<&str>,
    ) {
        let row = row("a", Some(&answers(images)), images.len(), login_missing);
        assert_eq!(
            (row.verdict, row.bytes_to_pull, row.reason.as_deref()),
            (verdict, to_pull, reason)
        );
        assert_eq!(row.bytes_free, Some(60 * GIB));
    }

    #[test]
    fn what_was_never_measured_is_not_counted() {
        let there = Answer {
            bytes: None,
            ..answer(0, 0, None)
        };
        let row = row("a", Some(&answers(&[there, answer(1, 3, None)])), 2, false);
        assert_eq!((row.bytes_to_pull, row.bytes_present), (Some(2), None));
    }

    #[test]
    fn a_node_that_did_not_answer_everything_is_silent() {
        let row = row("a", Some(&answers(&[answer(1, 3, None)])), 2, false);
        assert!(row.is_silent());
        assert_eq!(row.bytes_free, Some(60 * GIB));
    }

    #[test]
    fn the_json_is_what_scripts_rely_on() {
        let row = row("a", Some(&answers(&[answer(1, 3, None)])), 1, false);
        assert_eq!(
            serde_json::to_value(row).unwrap(),
            serde_json::json!({"node": "a", "verdict": "Fits", "bytesToPull": 2, "bytesPresent": 1, "bytesFree": 60 * GIB, "reason": null})
        );
    }
}
