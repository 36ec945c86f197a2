//! What is said of images that were removed from nodes after they had been pulled, by the kubelet or by people.

use jiff::Timestamp;

use super::{ExplainedState, Explanation, say};
use crate::view::Loss;

/// What a node does about an image that it no longer has. `refresh` is when the job looks at the node again by itself.
pub(super) fn lost(loss: Loss, refresh: Option<Timestamp>) -> Explanation {
    const LOST: &str = "The image was there and was removed from the node, and not by Larder.";
    match loss {
        Loss::Pulling => say(
            ExplainedState::Pulling,
            None,
            format!("{LOST} It is being pulled again."),
        ),
        Loss::Waiting(None) => {
            let text = format!("{LOST} It is pulled again after a pause, which grows with every removal.");
            say(ExplainedState::Queued, None, text)
        }
        Loss::Waiting(Some(reason)) => {
            let text = format!("{LOST} It is pulled again when that is possible. {}", reason.advice());
            say(ExplainedState::Blocked, Some(reason), text)
        }
        Loss::Failed(reason) => {
            let again = refresh.map_or_else(String::new, |moment| format!(" It is tried again at {moment}."));
            let text = format!("{LOST} It could not be pulled again. {}{again}", reason.advice());
            say(ExplainedState::Failed, Some(reason), text)
        }
    }
}

/// How many nodes of a job lost the image; None if none did.
pub(crate) fn lost_sentence(nodes: usize) -> Option<String> {
    match nodes {
        0 => None,
        1 => Some("1 node lost the image after it had been pulled, and pulls it again".to_owned()),
        many => Some(format!(
            "{many} nodes lost the image after it had been pulled, and pull it again"
        )),
    }
}

#[cfg(test)]
mod tests {
    use larder_api::contract::Answer;
    use larder_model::Reason;
    use rstest::rstest;

    use crate::Progress;
    use crate::view::Loss;
    use crate::view::samples::{at, campaign, node, ordered};

    #[rstest]
    #[case::pulls(Loss::Pulling, "Pulling", None, "It is being pulled again.")]
    #[case::pause(Loss::Waiting(None), "Queued", None, "after a pause")]
    #[case::full(Loss::Waiting(Some(Reason::NoSpace)), "Blocked", Some(Reason::NoSpace), "Free space")]
    #[case::failed(
        Loss::Failed(Reason::NotFound),
        "Failed",
        Some(Reason::NotFound),
        "could not be pulled again"
    )]
    fn a_node_that_lost_the_image_is_not_said_to_have_it(
        #[case] loss: Loss,
        #[case] state: &str,
        #[case] reason: Option<Reason>,
        #[case] words: &str,
    ) {
        let mut view = ordered(at(0), Answer::Succeeded);
        view.claim.as_mut().unwrap().loss = Some(loss);
        let mut progress = Progress::new(campaign(1), at(0));
        progress.node_changed(&node(1), view, at(0));
        let explanation = progress.explain(&node(1), at(5));
        assert_eq!((explanation.state.as_str(), explanation.reason), (state, reason));
        assert!(explanation.sentence.contains(words), "{}", explanation.sentence);
        assert_eq!((progress.counts().succeeded, progress.counts().lost), (1, 1));
        progress.node_changed(&node(1), ordered(at(0), Answer::Succeeded), at(6));
        assert_eq!((progress.counts().succeeded, progress.counts().lost), (1, 0));
    }
}
