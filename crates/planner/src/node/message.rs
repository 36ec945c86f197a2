//! What a failed entry says. Scripts read the beginning, people the end.

use larder_api::contract::MESSAGE_BYTES_MAX;
use larder_model::Reason;

use super::Key;

/// `Failed to pull image reference "…": `, the runtime's own words, then a sentence to act on.
///
/// Where it would be too long, the runtime's words lose their beginning: runtimes put the cause last.
pub fn pull_message(key: &Key, reason: Reason, words: &str) -> String {
    let begin = format!("Failed to pull image reference \"{key}\": ");
    let words = words.trim().trim_end_matches('.');
    let end = format!(". {}", reason.advice());
    let room = MESSAGE_BYTES_MAX.saturating_sub(begin.len() + end.len());
    format!("{begin}{}{end}", keep_end(words, room))
}

fn keep_end(words: &str, room: usize) -> String {
    const MARK: &str = "…";
    if words.len() <= room {
        return words.to_owned();
    }
    let kept = room.saturating_sub(MARK.len());
    let from = words.ceil_char_boundary(words.len() - kept);
    format!("{MARK}{}", &words[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tag: &str) -> Key {
        Key {
            name: "nginx".into(),
            tag: tag.into(),
        }
    }

    #[test]
    fn says_what_happened_and_what_to_do() {
        let message = pull_message(&key("1"), Reason::NotFound, "manifest unknown.");
        let want = format!(
            "Failed to pull image reference \"nginx:1\": manifest unknown. {}",
            Reason::NotFound.advice()
        );
        assert_eq!(message, want);
    }

    #[test]
    fn a_long_chain_keeps_its_cause_and_the_advice() {
        let words = format!("{}connection refused", "dial tcp ü: ".repeat(300));
        let message = pull_message(&key("1"), Reason::Unreachable, &words);
        assert!(message.len() <= MESSAGE_BYTES_MAX, "{}", message.len());
        assert!(message.contains("connection refused. "));
        assert!(message.ends_with(Reason::Unreachable.advice()));
    }
}
