//! `app=web,tier!=cache,env in (a,b),!gone`: the label selectors of lists and watches.

use std::fmt;

/// All requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Parses the text of a `labelSelector` parameter.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser::new(text)?;
        let mut requirements = Vec::new();
        while !parser.at_end() {
            requirements.push(parser.requirement()?);
            if !parser.at_end() {
                parser.comma()?;
                if parser.at_end() {
                    return Err("found '', expected: identifier after ','".into());
                }
            }
        }
        Ok(Self { requirements })
    }

    /// Whether every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object with these labels matches.
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = label(&requirement.key);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Missing => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value)),
                Test::Greater(bound) => number(value).is_some_and(|value| value > *bound),
                Test::Less(bound) => number(value).is_some_and(|value| value < *bound),
            }
        })
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value.and_then(|value| value.parse().ok())
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            match test {
                Test::Exists => write!(formatter, "{key}")?,
                Test::Missing => write!(formatter, "!{key}")?,
                Test::In(values) => write!(formatter, "{key} in ({})", values.join(","))?,
                Test::NotIn(values) => write!(formatter, "{key} notin ({})", values.join(","))?,
                Test::Greater(bound) => write!(formatter, "{key}>{bound}")?,
                Test::Less(bound) => write!(formatter, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn new(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        let mut rest = text;
        'tokens: while let Some(first) = rest.chars().next() {
            if first.is_whitespace() {
                rest = &rest[first.len_utf8()..];
                continue;
            }
            for symbol in ["==", "!=", "=", "!", "(", ")", ",", ">", "<"] {
                if let Some(after) = rest.strip_prefix(symbol) {
                    tokens.push(Token::Symbol(symbol));
                    rest = after;
                    continue 'tokens;
                }
            }
            let end = rest
                .find(|c: char| c.is_whitespace() || "=!(),<>".contains(c))
                .unwrap_or(rest.len());
            let word = &rest[..end];
            if let Some(bad) = word
                .chars()
                .find(|c| !(c.is_ascii_alphanumeric() || "-_./".contains(*c)))
            {
                return Err(format!(
                    "found '{bad}' in {word:?}, which cannot stand in a label selector"
                ));
            }
            tokens.push(Token::Word(word.to_owned()));
            rest = &rest[end..];
        }
        Ok(Self { tokens, next: 0 })
    }

    fn at_end(&self) -> bool {
        self.next >= self.tokens.len()
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn comma(&mut self) -> Result<(), String> {
        match self.take() {
            Some(Token::Symbol(",")) => Ok(()),
            other => Err(format!("found '{}', expected: ','", shown(other.as_ref()))),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.peek() == Some(&Token::Symbol("!")) {
            self.take();
            let key = self.key()?;
            return Ok(Requirement {
                key,
                test: Test::Missing,
            });
        }
        let key = self.key()?;
        let test = match self.peek().cloned() {
            None | Some(Token::Symbol(",")) => Test::Exists,
            Some(Token::Symbol("=" | "==")) => {
                self.take();
                Test::In(vec![self.single_value()?])
            }
            Some(Token::Symbol("!=")) => {
                self.take();
                Test::NotIn(vec![self.single_value()?])
            }
            Some(Token::Symbol(">")) => {
                self.take();
                Test::Greater(self.integer()?)
            }
            Some(Token::Symbol("<")) => {
                self.take();
                Test::Less(self.integer()?)
            }
            Some(Token::Word(word)) if word == "in" || word == "notin" => {
                self.take();
                let values = self.value_list()?;
                if word == "in" {
                    Test::In(values)
                } else {
                    Test::NotIn(values)
                }
            }
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    shown(other.as_ref())
                ));
            }
        };
        Ok(Requirement { key, test })
    }

    fn key(&mut self) -> Result<String, String> {
        match self.take() {
            Some(Token::Word(key)) => {
                crate::names::label_key(&key).map_err(|why| format!("key: Invalid value: {key:?}: {why}"))?;
                Ok(key)
            }
            other => Err(format!("found '{}', expected: !, identifier", shown(other.as_ref()))),
        }
    }

    fn single_value(&mut self) -> Result<String, String> {
        match self.peek().cloned() {
            None | Some(Token::Symbol(",")) => Ok(String::new()),
            Some(Token::Word(value)) => {
                self.take();
                checked_value(value)
            }
            other => Err(format!("found '{}', expected: identifier", shown(other.as_ref()))),
        }
    }

    fn integer(&mut self) -> Result<i64, String> {
        let value = self.single_value()?;
        value
            .parse()
            .map_err(|_| format!("for 'Gt', 'Lt' operators, the value must be an integer, not {value:?}"))
    }

    fn value_list(&mut self) -> Result<Vec<String>, String> {
        if self.take() != Some(Token::Symbol("(")) {
            return Err("expected: '('".into());
        }
        let mut values = Vec::new();
        let mut word = String::new();
        loop {
            match self.take() {
                Some(Token::Word(value)) if word.is_empty() => word = checked_value(value)?,
                Some(Token::Symbol(",")) => values.push(std::mem::take(&mut word)),
                Some(Token::Symbol(")")) => {
                    values.push(word);
                    return Ok(values);
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        shown(other.as_ref())
                    ));
                }
            }
        }
    }
}

fn checked_value(value: String) -> Result<String, String> {
    crate::names::label_value(&value).map_err(|why| format!("values: Invalid value: {value:?}: {why}"))?;
    Ok(value)
}

fn shown(token: Option<&Token>) -> String {
    match token {
        None => String::new(),
        Some(Token::Word(word)) => word.clone(),
        Some(Token::Symbol(symbol)) => (*symbol).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        LabelSelector::parse(selector)
            .unwrap()
            .matches(|key| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    }

    #[rstest]
    #[case::empty_matches_all("", &[], true)]
    #[case::equality("a=b", &[("a", "b")], true)]
    #[case::double_equality("a==b", &[("a", "b")], true)]
    #[case::other_value("a=b", &[("a", "c")], false)]
    #[case::inequality_holds_without_the_label("a!=b", &[], true)]
    #[case::inequality("a!=b", &[("a", "b")], false)]
    #[case::exists("a", &[("a", "")], true)]
    #[case::missing("!a", &[("a", "")], false)]
    #[case::one_of("a in (b, c)", &[("a", "c")], true)]
    #[case::none_of("a notin (b,c)", &[("a", "c")], false)]
    #[case::empty_value("a=", &[("a", "")], true)]
    #[case::greater("a>1", &[("a", "2")], true)]
    #[case::less_of_a_word("a<1", &[("a", "x")], false)]
    #[case::all_must_hold("a=b,c", &[("a", "b")], false)]
    #[case::prefixed_key("example.com/a=b", &[("example.com/a", "b")], true)]
    fn selects(#[case] selector: &str, #[case] labels: &[(&str, &str)], #[case] want: bool) {
        assert_eq!(matches(selector, labels), want);
    }

    #[rstest]
    #[case::two_operators("a==b==c")]
    #[case::open_list("a in (b")]
    #[case::trailing_comma("a=b,")]
    #[case::bad_key("-a=b")]
    #[case::bad_value("a=-b-")]
    #[case::strange_character("a=b&c")]
    #[case::no_integer("a>b")]
    fn refuses(#[case] selector: &str) {
        LabelSelector::parse(selector).unwrap_err();
    }

    fn requirement() -> impl Strategy<Value = Requirement> {
        let word = "[a-z][a-z0-9]{0,5}";
        let test = prop_oneof![
            Just(Test::Exists),
            Just(Test::Missing),
            prop::collection::vec(word, 1..3).prop_map(Test::In),
            prop::collection::vec(word, 1..3).prop_map(Test::NotIn),
            any::<i32>()
                .prop_filter("a label value starts with a letter or digit", |n| *n >= 0)
                .prop_map(|n| Test::Greater(i64::from(n))),
        ];
        (word, test).prop_map(|(key, test)| Requirement { key, test })
    }

    proptest! {
        #[test]
        fn printed_selectors_parse_to_the_same(requirements in prop::collection::vec(requirement(), 0..4)) {
            let selector = LabelSelector { requirements };
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            drop(LabelSelector::parse(&text));
        }
    }
}
