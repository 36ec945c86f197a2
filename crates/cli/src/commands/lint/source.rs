//! Mistakes in the text of a file that a YAML reader cannot explain: they come with copying from documents and from editors
//! for prose. Pure: a text in, the corrected text and what was wrong out.

/// A mistake on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// Counted from 1.
    pub(super) line: usize,
    /// What is wrong, and what to write.
    pub(super) sentence: String,
}

/// A text without the mistakes that were found in it, so that the checks can go on.
#[derive(Debug, Default)]
pub(super) struct Corrected {
    pub(super) text: String,
    pub(super) mistakes: Vec<Mistake>,
}

pub(super) fn correct(text: &str) -> Corrected {
    let mut corrected = Corrected::default();
    let mut block: Option<usize> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.chars().take_while(|c| is_space(*c)).count();
        let is_blank = line.trim().is_empty();
        // A block scalar is data, whatever it looks like.
        block = block.filter(|begun| is_blank || *begun < indent);
        let mut kept = line.to_owned();
        if block.is_none() {
            for correct in [left_out, indentation, full_width_colon] {
                if let Some((better, sentence)) = correct(&kept) {
                    kept = better;
                    let line = number + 1;
                    corrected.mistakes.push(Mistake { line, sentence });
                }
            }
            block = begins_block(&kept).then_some(indent);
        }
        corrected.text.push_str(&kept);
        corrected.text.push('\n');
    }
    corrected
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{3000}' | '\u{a0}')
}

/// Whether a line ends in the mark of a literal or folded text.
fn begins_block(line: &str) -> bool {
    let line = line.split(" #").next().unwrap_or_default().trim_end();
    let mark = line.rsplit([' ', '\t']).next().unwrap_or_default();
    let rest = mark.strip_prefix(['|', '>']);
    rest.is_some_and(|rest| rest.chars().all(|c| matches!(c, '+' | '-' | '1'..='9')))
}

/// `...` on a line of its own, where a document left lines out.
fn left_out(line: &str) -> Option<(String, String)> {
    // Without an indent it is the end of a YAML document.
    let is_it = line.starts_with(is_space) && line.trim() == "...";
    is_it.then(|| {
        let sentence = "`...` stands for lines that the example leaves out; remove it";
        (String::new(), sentence.to_owned())
    })
}

/// Characters that look like spaces, in front of a line.
fn indentation(line: &str) -> Option<(String, String)> {
    let rest = line.trim_start_matches(is_space);
    let indent = line.strip_suffix(rest)?;
    let name = indent.chars().find_map(|c| match c {
        '\t' => Some("a tab"),
        '\u{3000}' => Some("a full-width space"),
        '\u{a0}' => Some("a non-breaking space"),
        _ => None,
    })?;
    if rest.is_empty() || rest.starts_with('#') {
        return None;
    }
    let width = |c: char| if matches!(c, '\t' | '\u{3000}') { 2 } else { 1 };
    let better = format!("{}{rest}", " ".repeat(indent.chars().map(width).sum()));
    Some((better, format!("the line is indented with {name}; indent with spaces")))
}

/// A key that a full-width colon follows.
fn full_width_colon(line: &str) -> Option<(String, String)> {
    let (before, after) = line.split_once('：')?;
    let key = before.trim_start_matches([' ', '-']);
    let name = key.trim_matches(['"', '\'']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let gap = if after.is_empty() || after.starts_with(' ') {
        ""
    } else {
        " "
    };
    let sentence = format!("the colon after {name} is full-width (：); write an ASCII colon: `{name}:`");
    Some((format!("{before}:{gap}{after}"), sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::full_width_colon("spec:\n  nodes：\n    - a\n", "spec:\n  nodes:\n    - a\n", &[(2, "write an ASCII colon: `nodes:`")])]
    #[case::full_width_colon_and_value("- tag：v1\n", "- tag: v1\n", &[(1, "write an ASCII colon: `tag:`")])]
    #[case::quoted_key("\"a/b\"： 1\n", "\"a/b\": 1\n", &[(1, "write an ASCII colon: `a/b:`")])]
    #[case::tab("a:\n\tb: 1\n", "a:\n  b: 1\n", &[(2, "indented with a tab")])]
    #[case::full_width_space("a:\n\u{3000}b：1\n", "a:\n  b: 1\n", &[(2, "indented with a full-width space"), (2, "`b:`")])]
    #[case::left_out("spec:\n  ...\n  image: a\n", "spec:\n\n  image: a\n", &[(2, "remove it")])]
    #[case::nothing("a: 说明：好\n# 说明：\nb: [x, '：']\n", "a: 说明：好\n# 说明：\nb: [x, '：']\n", &[])]
    #[case::block("a: |  # text\n  key：x\n\n  \ty\nb：1\n", "a: |  # text\n  key：x\n\n  \ty\nb: 1\n", &[(5, "`b:`")])]
    #[case::end_of_document("a: 1\n...\n", "a: 1\n...\n", &[])]
    fn mistakes(#[case] text: &str, #[case] want: &str, #[case] says: &[(usize, &str)]) {
        let corrected = correct(text);
        assert_eq!(corrected.text, want);
        assert_eq!(corrected.mistakes.len(), says.len(), "{:?}", corrected.mistakes);
        for (mistake, (line, says)) in corrected.mistakes.iter().zip(says) {
            assert_eq!(mistake.line, *line, "{mistake:?}");
            assert!(mistake.sentence.contains(says), "{mistake:?}");
        }
    }
}
