//! What a runtime or registry said to a failure, without the words that stand around it in a NodeImage: they name the image
//! in front and give advice at the end, which tables do in other columns. Pure.

use larder_model::Reason;
use larder_planner::node::own_words;

/// The words themselves; None if there are none.
pub(crate) fn cause(message: &str, reason: Option<Reason>) -> Option<String> {
    let words: Vec<&str> = own_words(message, reason).split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The cause as a sentence in front of another.
pub(crate) fn before(cause: Option<String>, sentence: &str) -> String {
    let Some(cause) = cause.filter(|cause| !sentence.contains(cause.as_str())) else {
        return sentence.to_owned();
    };
    let mut letters = cause.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}. {sentence}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_planner::node::{Key, pull_message};
    use rstest::rstest;

    #[test]
    fn only_the_words_are_left() {
        let key = Key {
            name: "nginx".into(),
            tag: "1".into(),
        };
        let message = pull_message(&key, Reason::NotFound, "manifest\nunknown.");
        assert_eq!(cause(&message, Some(Reason::NotFound)), Some("manifest unknown".into()));
    }

    #[rstest]
    #[case::nothing("", None)]
    #[case::advice_alone(Reason::Dns.advice(), None)]
    #[case::other_words("the disk is full", Some("the disk is full"))]
    #[case::cut_prefix("Failed to pull image reference \"a", Some("a"))]
    fn what_is_left_of(#[case] message: &str, #[case] want: Option<&str>) {
        assert_eq!(cause(message, Some(Reason::Dns)).as_deref(), want);
    }

    #[test]
    fn a_cause_becomes_a_sentence() {
        assert_eq!(
            before(Some("no such host".into()), "Check it."),
            "No such host. Check it."
        );
        assert_eq!(before(None, "Check it."), "Check it.");
        assert_eq!(before(Some("Check".into()), "Check it."), "Check it.");
    }
}
