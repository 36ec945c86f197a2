//! What a name, a label and an annotation may look like. Pure.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                         '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                         for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                         with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                     and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
                     '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The name of most objects: at most 253 characters.
pub(crate) fn subdomain(name: &str) -> Result<(), String> {
    if name.len() > 253 {
        return Err("must be no more than 253 bytes".into());
    }
    let good = name.split('.').all(is_dns_label);
    if good { Ok(()) } else { Err(SUBDOMAIN.into()) }
}

/// The name of a Namespace: at most 63 characters, no dots.
pub(crate) fn dns_label(name: &str) -> Result<(), String> {
    if name.len() > 63 {
        return Err("must be no more than 63 bytes".into());
    }
    if is_dns_label(name) { Ok(()) } else { Err(LABEL.into()) }
}

fn is_dns_label(part: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(inner) && part.ends_with(inner) && part.chars().all(|c| inner(c) || c == '-')
}

/// The key of a label or annotation: `name` or `prefix/name`.
pub(crate) fn label_key(key: &str) -> Result<(), String> {
    let name = match key.split_once('/') {
        Some(("", _)) => return Err("prefix part must be non-empty".into()),
        Some((prefix, name)) => {
            subdomain(prefix).map_err(|why| format!("prefix part {why}"))?;
            name
        }
        None => key,
    };
    if name.is_empty() {
        return Err("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Err("name part must be no more than 63 bytes".into());
    }
    if is_word(name) { Ok(()) } else { Err(QUALIFIED.into()) }
}

/// The value of a label: at most 63 characters.
pub(crate) fn label_value(value: &str) -> Result<(), String> {
    if value.len() > 63 {
        return Err("must be no more than 63 bytes".into());
    }
    if value.is_empty() || is_word(value) {
        Ok(())
    } else {
        Err(VALUE.into())
    }
}

fn is_word(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(edge) && text.ends_with(edge) && text.chars().all(|c| edge(c) || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", true)]
    #[case("node-1.example.com", true)]
    #[case("", false)]
    #[case("-a", false)]
    #[case("a-", false)]
    #[case("A", false)]
    #[case("a_b", false)]
    #[case("a..b", false)]
    fn names(#[case] name: &str, #[case] good: bool) {
        assert_eq!(subdomain(name).is_ok(), good);
        assert_eq!(dns_label(name).is_ok(), good && !name.contains('.'));
    }

    #[rstest]
    #[case("a", true)]
    #[case("example.com/Name_1", true)]
    #[case("/a", false)]
    #[case("a/", false)]
    #[case("a/b/c", false)]
    #[case("Upper.com/a", false)]
    fn keys(#[case] key: &str, #[case] good: bool) {
        assert_eq!(label_key(key).is_ok(), good);
    }

    #[test]
    fn lengths() {
        assert!(subdomain(&"a".repeat(253)).is_ok() && subdomain(&"a".repeat(254)).is_err());
        assert!(dns_label(&"a".repeat(63)).is_ok() && dns_label(&"a".repeat(64)).is_err());
        assert!(label_value(&"a".repeat(63)).is_ok() && label_value(&"a".repeat(64)).is_err());
        assert!(label_value("").is_ok() && label_value("a b").is_err());
    }
}
