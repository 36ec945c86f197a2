//! How a registry wants to be asked: the `WWW-Authenticate` header.

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// What the registry wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A token from a token service.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
    /// User name and password with every request.
    Basic,
}

impl Challenge {
    /// The best of the ways that the answer offers: a token is worth less to a thief than a password.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let offers: Vec<Offer> = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(offers)
            .collect();
        let bearer = offers.iter().find_map(|offer| {
            let realm = offer.get("realm")?.to_owned();
            let text = |name| offer.get(name).map(str::to_owned);
            let is_bearer = offer.scheme.eq_ignore_ascii_case("bearer");
            is_bearer.then(|| Challenge::Bearer {
                realm,
                service: text("service"),
                scope: text("scope"),
            })
        });
        let basic = || {
            offers
                .iter()
                .any(|offer| offer.scheme.eq_ignore_ascii_case("basic"))
                .then_some(Self::Basic)
        };
        bearer.or_else(basic)
    }
}

struct Offer {
    scheme: String,
    parameters: Vec<(String, String)>,
}

impl Offer {
    fn get(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Reads `Scheme key=value, key="value", Scheme …`: a word followed by `=` is a parameter, any other begins an offer.
fn offers(header: &str) -> Vec<Offer> {
    let mut offers: Vec<Offer> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        let end = rest
            .find(|c: char| c == '=' || c == ',' || c.is_whitespace())
            .unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        if word.is_empty() && !tail.starts_with('=') {
            return offers;
        }
        rest = if let Some(tail) = tail.strip_prefix('=') {
            let (value, tail) = value(tail);
            if let Some(offer) = offers.last_mut() {
                offer.parameters.push((word.to_owned(), value));
            }
            tail
        } else {
            offers.push(Offer {
                scheme: word.to_owned(),
                parameters: Vec::new(),
            });
            tail
        };
    }
}

fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c == ',' || c.is_whitespace()).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::HeaderValue;
    use rstest::rstest;

    use super::*;

    fn read(lines: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_str(line).unwrap());
        }
        Challenge::from_headers(&headers)
    }

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let text = |text: Option<&str>| text.map(str::to_owned);
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: text(service),
            scope: text(scope),
        }
    }

    #[rstest]
    #[case::hub(
        &[r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:x:pull,push""#],
        Some(bearer("https://auth.docker.io/token", Some("registry.docker.io"), Some("repository:x:pull,push")))
    )]
    #[case::realm_alone(&["bearer realm=https://a/t"], Some(bearer("https://a/t", None, None)))]
    #[case::spaces(&[r#"Bearer  realm="r" , service="s""#], Some(bearer("r", Some("s"), None)))]
    #[case::escaped_quote(&[r#"Bearer realm="a\"b""#], Some(bearer("a\"b", None, None)))]
    #[case::basic(&[r#"Basic realm="Registry""#], Some(Challenge::Basic))]
    #[case::basic_without_realm(&["Basic"], Some(Challenge::Basic))]
    #[case::both_in_one_line(&[r#"Basic realm="x", Bearer realm="y""#], Some(bearer("y", None, None)))]
    #[case::both_in_two_lines(&["Basic", r#"Bearer realm="y""#], Some(bearer("y", None, None)))]
    #[case::bearer_without_realm(&["Bearer", "Basic"], Some(Challenge::Basic))]
    #[case::unknown(&["Negotiate"], None)]
    #[case::none(&[], None)]
    #[case::open_quote(&[r#"Bearer realm="y"#], Some(bearer("y", None, None)))]
    fn reads(#[case] lines: &[&str], #[case] want: Option<Challenge>) {
        assert_eq!(read(lines), want);
    }

    proptest! {
        #[test]
        fn any_header_is_read_without_harm(text in "[ -~]{0,60}") {
            let offers = offers(&text);
            prop_assert!(offers.len() <= text.len());
        }
    }
}
