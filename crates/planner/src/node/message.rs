//! What an entry says. Of a failed one scripts read the beginning, people the end.

use std::time::Duration;

use larder_api::contract::MESSAGE_BYTES_MAX;
use larder_model::{ByteSize, Reason};

use super::{Key, Origin};

/// Hosts that a message names.
const HOSTS_NAMED: usize = 3;

/// What stands around the reference at the beginning of a failed entry's message.
const BEFORE_REFERENCE: &str = "Failed to pull image reference \"";
const AFTER_REFERENCE: &str = "\": ";

/// `Failed to pull image reference "…": `, the runtime's own words, then a sentence to act on.
///
/// Where it would be too long, the runtime's words lose their beginning: runtimes put the cause last.
pub fn pull_message(key: &Key, reason: Reason, words: &str) -> String {
    let begin = format!("{BEFORE_REFERENCE}{key}{AFTER_REFERENCE}");
    let words = words.trim().trim_end_matches('.');
    let end = format!(". {}", reason.advice());
    let room = MESSAGE_BYTES_MAX.saturating_sub(begin.len() + end.len());
    format!("{begin}{}{end}", keep_end(words, room))
}

/// The runtime's own words in a message of [`pull_message`]. Another message is nothing but words.
pub fn own_words(message: &str, reason: Option<Reason>) -> &str {
    let advice = reason.map(Reason::advice).unwrap_or_default();
    let words = message.trim();
    let words = words.strip_suffix(advice).unwrap_or(words);
    let words = match words.strip_prefix(BEFORE_REFERENCE) {
        Some(rest) => rest.split_once(AFTER_REFERENCE).map_or(rest, |(_, words)| words),
        None => words,
    };
    words.trim().trim_end_matches('.')
}

/// What a pull says that waits because the registry asked for time.
pub(super) fn wait_message(asked: Duration) -> String {
    format!(
        "The registry asked to retry after {} s; the pull goes on then.",
        asked.as_secs()
    )
}

/// Where the bytes of an image came from.
pub(super) fn origin_message(origin: &Origin) -> String {
    let (fetched, present) = (ByteSize(origin.fetched), ByteSize(origin.present));
    let hosts: Vec<&str> = origin.hosts.iter().take(HOSTS_NAMED).map(String::as_str).collect();
    let more = if HOSTS_NAMED < origin.hosts.len() { ", …" } else { "" };
    let from = if hosts.is_empty() {
        "the registry".to_owned()
    } else {
        format!("{}{more}", hosts.join(", "))
    };
    match (origin.fetched, origin.present) {
        (0, _) => format!("All {present} were on the node already."),
        (_, 0) => format!("All {fetched} came from {from}."),
        _ => format!("{fetched} came from {from}; {present} were on the node already."),
    }
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
    use rstest::rstest;

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

    #[rstest]
    #[case::plain("manifest unknown")]
    #[case::with_a_full_stop("manifest unknown.")]
    #[case::with_quotes("cannot resolve \"nginx:1\": no such host")]
    #[case::none("")]
    fn the_words_are_found_again(#[case] words: &str) {
        for reason in Reason::ALL {
            let message = pull_message(&key("1"), reason, words);
            assert_eq!(own_words(&message, Some(reason)), words.trim_end_matches('.'));
        }
    }

    #[rstest]
    #[case::other_words("the disk is full", "the disk is full")]
    #[case::cut_in_the_reference("Failed to pull image reference \"a", "a")]
    #[case::nothing("", "")]
    fn the_words_of_other_messages(#[case] message: &str, #[case] want: &str) {
        assert_eq!(own_words(message, Some(Reason::Dns)), want);
        assert_eq!(own_words(message, None), want);
    }

    #[rstest]
    #[case::new(8 << 20, 0, &["mirror.example:5000"], "All 8.0 MiB came from mirror.example:5000.")]
    #[case::in_part(6 << 20, 2 << 20, &["a", "b"], "6.0 MiB came from a, b; 2.0 MiB were on the node already.")]
    #[case::known_before(0, 8 << 20, &[], "All 8.0 MiB were on the node already.")]
    #[case::by_the_runtime(8 << 20, 0, &[], "All 8.0 MiB came from the registry.")]
    #[case::many_hosts(8 << 20, 0, &["a", "b", "c", "d"], "All 8.0 MiB came from a, b, c, ….")]
    fn says_where_an_image_came_from(
        #[case] fetched: u64,
        #[case] present: u64,
        #[case] hosts: &[&str],
        #[case] want: &str,
    ) {
        let origin = Origin {
            fetched,
            present,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        };
        assert_eq!(origin_message(&origin), want);
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
