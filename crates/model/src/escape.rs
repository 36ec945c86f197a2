//! Makes foreign text safe to show: characters that change how a terminal or a log viewer displays the text around them are
//! written as escapes.
//!
//! These characters are the control characters C0, DEL and C1 (with them every ESC, CSI and OSC sequence), the line and
//! paragraph separators, the format characters of Unicode (with them the bidirectional ones), and the characters that are not
//! displayed by default: with one of them, two different names look the same.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

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

/// A serialised JSON text: such characters become `\u` and four hexadecimal digits, twice for those beyond 16 bits, which a
/// parser reads back as the same character. Line breaks stay: they only occur between values.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    replace(
        json,
        |c| is_hazard(c) && c != '\n',
        |out, c| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a String cannot fail.
                write!(out, "\\u{unit:04x}").ok();
            }
        },
    )
}

/// YAML whose affected strings are double-quoted: as [`escape_json`], but characters beyond 16 bits become `\U` and eight
/// digits.
pub fn escape_yaml(yaml: &str) -> Cow<'_, str> {
    replace(
        yaml,
        |c| is_hazard(c) && c != '\n',
        |out, c| {
            // Writing into a String cannot fail.
            match u16::try_from(u32::from(c)) {
                Ok(unit) => write!(out, "\\u{unit:04x}").ok(),
                Err(_) => write!(out, "\\U{:08x}", u32::from(c)).ok(),
            };
        },
    )
}

/// Whether a character changes how the text around it is displayed, or is not displayed itself.
fn is_hazard(c: char) -> bool {
    // Nearly every character of nearly every text.
    if matches!(c, ' '..='~') {
        return false;
    }
    c.is_control() || HIDDEN.iter().any(|range| range.contains(&c))
}

/// The general categories Cf, Zl and Zp, and the property Default_Ignorable_Code_Point. A test compares them with Unicode's
/// tables.
const HIDDEN: [RangeInclusive<char>; 25] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{6dd}'..='\u{6dd}',
    '\u{70f}'..='\u{70f}',
    '\u{890}'..='\u{891}',
    '\u{8e2}'..='\u{8e2}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{110bd}'..='\u{110bd}',
    '\u{110cd}'..='\u{110cd}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    // Tags, variation selectors, and what is reserved for more of them.
    '\u{e0000}'..='\u{e0fff}',
];

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
    #[case::emoji("👩💻", "👩💻")]
    #[case::joined_emoji("👩\u{200d}💻", "👩\\u{200d}💻")]
    #[case::byte_order_mark("\u{feff}a", "\\u{feff}a")]
    #[case::zero_width("a\u{200b}b\u{200c}c\u{2060}d", "a\\u{200b}b\\u{200c}c\\u{2060}d")]
    #[case::soft_hyphen("a\u{ad}b", "a\\u{ad}b")]
    #[case::hangul_filler("a\u{3164}b", "a\\u{3164}b")]
    #[case::tags("a\u{e0061}", "a\\u{e0061}")]
    #[case::variation_selectors("a\u{fe0f}\u{e0100}", "a\\u{fe0f}\\u{e0100}")]
    fn one_line(#[case] text: &str, #[case] want: &str) {
        assert_eq!(escape_line(text), want);
    }

    /// Unicode's own tables, as the regex crate has them.
    #[test]
    fn every_character_is_judged_by_its_category() {
        let hidden = regex::Regex::new(r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]").unwrap();
        for c in '\0'..=char::MAX {
            assert_eq!(is_hazard(c), hidden.is_match(c.encode_utf8(&mut [0; 4])), "{c:?}");
        }
    }

    #[rstest]
    #[case::sixteen_bits("\u{feff}", "\\ufeff", "\\ufeff")]
    #[case::beyond("\u{e0061}", "\\udb40\\udc61", "\\U000e0061")]
    fn json_and_yaml_have_their_own_escapes(#[case] text: &str, #[case] json: &str, #[case] yaml: &str) {
        assert_eq!(escape_json(text), json);
        assert_eq!(escape_yaml(text), yaml);
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
            proptest::char::range('\u{fe00}', '\u{ffff}'),
            proptest::char::range('\u{e0000}', '\u{e0fff}'),
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
