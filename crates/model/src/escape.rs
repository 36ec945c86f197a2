//! Makes foreign text safe to show: characters that change how a terminal or a log viewer displays the text around them are
//! written as escapes.
//!
//! These characters are the control characters C0, DEL and C1 (with them every ESC, CSI and OSC sequence), the line
//! separators and the bidirectional formatting characters of Unicode.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Foreign text on one line: line breaks and tabs become spaces, all other such characters become `\u{…}`.
///
/// Text that is split into lines afterwards cannot pretend to be several.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    replace(text, is_hazard, |out, c| match c {
        '\n' | '\r' | '\t' => out.push(' '),
        other => out.extend(other.escape_unicode()),
    })
}

/// A text of several lines, such as a script: line breaks and tabs stay, all other such characters become `\u{…}`.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    replace(
        text,
        |c| is_hazard(c) && c != '\n' && c != '\t',
        |out, c| out.extend(c.escape_unicode()),
    )
}

/// A serialised JSON text, or YAML whose affected strings are double-quoted: such characters become `\uXXXX`, which a
/// parser reads back as the same character. Line breaks stay: they only occur between values.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    replace(
        json,
        |c| is_hazard(c) && c != '\n',
        |out, c| {
            // All of them are in the Basic Multilingual Plane. Writing into a String cannot fail.
            write!(out, "\\u{:04x}", u32::from(c)).ok();
        },
    )
}

/// Whether a character changes how the text around it is displayed.
fn is_hazard(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

fn replace(text: &str, is_escaped: impl Fn(char) -> bool, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            escape(&mut out, c);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain("größe 12 €, 镜像", "größe 12 €, 镜像")]
    #[case::colour("\u{1b}[31mred", "\\u{1b}[31mred")]
    #[case::title("\u{1b}]0;owned\u{7}", "\\u{1b}]0;owned\\u{7}")]
    #[case::c1_csi("\u{9b}2J", "\\u{9b}2J")]
    #[case::overwritten_line("bad\rgood", "bad good")]
    #[case::second_line("a\n\tb", "a  b")]
    #[case::backspace("ab\u{8}\u{7f}", "ab\\u{8}\\u{7f}")]
    #[case::right_to_left("\u{202e}gnp.exe\u{202c}", "\\u{202e}gnp.exe\\u{202c}")]
    #[case::isolates(
        "\u{2066}x\u{2069}\u{200e}\u{200f}\u{61c}",
        "\\u{2066}x\\u{2069}\\u{200e}\\u{200f}\\u{61c}"
    )]
    #[case::line_separator("a\u{2028}b\u{85}c", "a\\u{2028}b\\u{85}c")]
    #[case::joined_emoji("👩\u{200d}💻", "👩\u{200d}💻")]
    fn one_line(#[case] text: &str, #[case] want: &str) {
        assert_eq!(escape_line(text), want);
    }

    #[test]
    fn several_lines_keep_their_breaks() {
        assert_eq!(escape_lines("a\n\tb\u{1b}[0m\r\n"), "a\n\tb\\u{1b}[0m\\u{d}\n");
    }

    /// Text in which such characters are frequent.
    fn foreign_text() -> impl Strategy<Value = String> {
        let c = prop_oneof![
            any::<char>(),
            proptest::char::range('\0', '\u{ff}'),
            proptest::char::range('\u{200b}', '\u{2070}'),
        ];
        proptest::collection::vec(c, 0..40).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn nothing_is_left(text in foreign_text()) {
            prop_assert!(!escape_line(&text).chars().any(is_hazard));
            let escaped = escape_lines(&text);
            prop_assert!(!escaped.chars().any(|c| is_hazard(c) && c != '\n' && c != '\t'));
        }

        #[test]
        fn json_keeps_its_meaning(text in foreign_text()) {
            let json = serde_json::to_string(&text).unwrap();
            let escaped = escape_json(&json);
            prop_assert!(!escaped.chars().any(is_hazard));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
    }
}
