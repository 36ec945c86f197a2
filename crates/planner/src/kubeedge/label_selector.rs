//! Label selectors in one line, as `kubectl -l` takes them: `key`, `!key`, `key=value`, `key==value`, `key!=value`,
//! `key in (a, b)`, `key notin (a, b)`, and several of them with commas between.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use thiserror::Error;

use crate::select::LabelRule;

/// A line that is no selector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a label selector; write key, !key, key=value, key!=value, key in (a, b) or key notin (a, b)")]
pub struct LabelLineError(String);

/// Reads one line.
pub fn parse(line: &str) -> Result<LabelRule, LabelLineError> {
    let refused = || LabelLineError(line.chars().take(100).collect());
    let requirements = terms(line)
        .into_iter()
        .map(|term| requirement(term.trim()))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(refused)?;
    LabelRule::new([], &requirements).map_err(|_| refused())
}

/// Cuts at the commas that stand outside of parentheses.
fn terms(line: &str) -> Vec<&str> {
    let mut inside = false;
    line.split(move |letter| {
        match letter {
            '(' => inside = true,
            ')' => inside = false,
            _ => {}
        }
        letter == ',' && !inside
    })
    .collect()
}

fn requirement(term: &str) -> Option<LabelSelectorRequirement> {
    if let Some((head, list)) = term.split_once('(') {
        let values: Vec<&str> = list.strip_suffix(')')?.split(',').map(str::trim).collect();
        let (key, operator) = head.trim_end().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => found(key.trim(), "In", &values),
            "notin" => found(key.trim(), "NotIn", &values),
            _ => None,
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return found(key.trim(), "NotIn", &[value.trim()]);
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return found(key.trim(), "In", &[value.trim()]);
    }
    match term.strip_prefix('!') {
        Some(key) => found(key.trim(), "DoesNotExist", &[]),
        None => found(term, "Exists", &[]),
    }
}

fn found(key: &str, operator: &str, values: &[&str]) -> Option<LabelSelectorRequirement> {
    let sound = |text: &str, extra: char| {
        text.chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.') || letter == extra)
    };
    let fits = !key.is_empty() && sound(key, '/') && values.iter().all(|value| sound(value, '.'));
    fits.then(|| LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then(|| values.iter().map(|value| (*value).to_owned()).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::exists("region", true)]
    #[case::exists_not("site", false)]
    #[case::absent("!site", true)]
    #[case::not_absent("!region", false)]
    #[case::equal("region=hangzhou", true)]
    #[case::equal_twice("region==hangzhou", true)]
    #[case::spaces(" region = hangzhou ", true)]
    #[case::another("region=beijing", false)]
    #[case::unequal("region!=beijing", true)]
    #[case::not_unequal("region!=hangzhou", false)]
    #[case::unequal_holds_without_the_key("site!=a", true)]
    #[case::one_of("region in (beijing, hangzhou)", true)]
    #[case::none_of("region in (beijing)", false)]
    #[case::no_space("region in(hangzhou)", true)]
    #[case::not_in("region notin (beijing,shanghai)", true)]
    #[case::not_not_in("region notin (hangzhou)", false)]
    #[case::both("region=hangzhou,arch in (arm64,amd64)", true)]
    #[case::one_does_not_hold("region=hangzhou,arch=amd64", false)]
    #[case::empty_value("node-role.kubernetes.io/edge=", true)]
    #[case::node_group("apps.kubeedge.io/belonging-to=east", true)]
    fn matches(#[case] line: &str, #[case] want: bool) {
        let labels = [
            ("region", "hangzhou"),
            ("arch", "arm64"),
            ("node-role.kubernetes.io/edge", ""),
            ("apps.kubeedge.io/belonging-to", "east"),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(parse(line).unwrap().matches(&labels), want);
    }

    #[rstest]
    #[case::nothing("")]
    #[case::comma_alone(",")]
    #[case::empty_term("a,,b")]
    #[case::no_key("=value")]
    #[case::two_words("region hangzhou")]
    #[case::unknown_operator("region near (a)")]
    #[case::open_list("region in (a")]
    #[case::greater("size>3")]
    #[case::exclamation_mark_alone("!")]
    #[case::three_equal_signs("a===b")]
    fn refuses(#[case] line: &str) {
        let error = parse(line).unwrap_err();
        assert!(error.to_string().contains("is not a label selector"), "{error}");
    }

    proptest! {
        #[test]
        fn never_panics(line in ".{0,60}") {
            drop(parse(&line));
        }
    }
}
