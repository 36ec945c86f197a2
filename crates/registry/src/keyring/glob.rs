//! Globs inside one label of a host name: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that means itself.

/// One element of a glob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    Any,
    One,
    Literal(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

/// A glob for one label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LabelGlob(Vec<Token>);

impl LabelGlob {
    /// Reads a glob; `None` if a bracket is left open, a class is empty or reversed, or a `\` ends the text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut tokens = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '*' => Token::Any,
                '?' => Token::One,
                '\\' => Token::Literal(chars.next()?),
                '[' => class(&mut chars)?,
                literal => Token::Literal(literal),
            });
        }
        Some(Self(tokens))
    }

    /// A label without any special meaning.
    pub(super) fn literal(text: &str) -> Self {
        Self(text.chars().map(Token::Literal).collect())
    }

    /// Walks both sides once and goes back only to the last `*`, so that no pattern takes exponential time.
    pub(super) fn matches(&self, label: &str) -> bool {
        let label: Vec<char> = label.chars().collect();
        let (mut at, mut read) = (0, 0);
        let mut last_star: Option<(usize, usize)> = None;
        while read < label.len() {
            match self.0.get(at) {
                Some(Token::Any) => {
                    last_star = Some((at, read));
                    at += 1;
                }
                Some(token) if token.takes(label[read]) => {
                    at += 1;
                    read += 1;
                }
                _ => match last_star {
                    Some((star, taken)) => {
                        last_star = Some((star, taken + 1));
                        at = star + 1;
                        read = taken + 1;
                    }
                    None => return false,
                },
            }
        }
        self.0[at..].iter().all(|token| *token == Token::Any)
    }
}

impl Token {
    fn takes(&self, c: char) -> bool {
        match self {
            Token::Any | Token::One => true,
            Token::Literal(literal) => *literal == c,
            Token::Class { negated, ranges } => ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated,
        }
    }
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Token> {
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        let from = match chars.next()? {
            ']' if ranges.is_empty() => return None,
            ']' => return Some(Token::Class { negated, ranges }),
            '-' => return None,
            '\\' => chars.next()?,
            c => c,
        };
        let to = match chars.next_if_eq(&'-') {
            None => from,
            Some(_) => match chars.next()? {
                ']' | '-' => return None,
                '\\' => chars.next()?,
                c => c,
            },
        };
        if to < from {
            return None;
        }
        ranges.push((from, to));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("abc", "abc", true)]
    #[case::plain_differs("abc", "abd", false)]
    #[case::star("*", "anything", true)]
    #[case::star_takes_nothing("a*", "a", true)]
    #[case::star_in_the_middle("a*c", "abbbc", true)]
    #[case::two_stars("*a*b", "xxaxab", true)]
    #[case::star_must_end_right("a*c", "abcd", false)]
    #[case::question_mark("a?c", "abc", true)]
    #[case::question_mark_needs_one("a?", "a", false)]
    #[case::class("[a-c]x", "bx", true)]
    #[case::class_outside("[a-c]x", "dx", false)]
    #[case::negated_class("[^a-c]x", "dx", true)]
    #[case::class_of_two("r[12]", "r2", true)]
    #[case::escaped_star("\\*", "x", false)]
    #[case::escaped_star_itself("\\*", "*", true)]
    #[case::empty("", "", true)]
    #[case::empty_against_text("", "a", false)]
    fn matches(#[case] glob: &str, #[case] label: &str, #[case] want: bool) {
        assert_eq!(LabelGlob::parse(glob).unwrap().matches(label), want);
    }

    #[rstest]
    #[case::open("[a")]
    #[case::empty("[]")]
    #[case::reversed("[z-a]")]
    #[case::half_a_range("[a-]")]
    #[case::backslash_last("a\\")]
    fn refuses(#[case] glob: &str) {
        assert_eq!(LabelGlob::parse(glob), None);
    }

    proptest! {
        #[test]
        fn a_literal_matches_itself_alone(a in "[a-z*?\\[]{0,6}", b in "[a-z*?\\[]{0,6}") {
            prop_assert_eq!(LabelGlob::literal(&a).matches(&b), a == b);
        }

        #[test]
        fn stars_between_the_letters_match_anything_that_keeps_their_order(word in "[a-z]{1,8}", noise in "[0-9]{0,5}") {
            let glob: String = word.chars().flat_map(|c| ['*', c]).collect();
            let label: String = word.chars().flat_map(|c| noise.chars().chain([c])).collect();
            prop_assert!(LabelGlob::parse(&glob).unwrap().matches(&label));
        }
    }
}
