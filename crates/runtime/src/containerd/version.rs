//! What depends on containerd's version.

use crate::{RuntimeVersion, Support};

/// First version whose CRI reports and honours pinned images.
const FIRST_WITH_PINS: (u32, u32, u32) = (1, 7, 10);

/// Whether this containerd knows pinned images.
pub(super) fn pins(version: &RuntimeVersion) -> Support {
    match numbers(&version.version) {
        Some(numbers) if FIRST_WITH_PINS <= numbers => Support::Yes,
        Some(_) => Support::No(format!(
            "{version} does not know pinned images; they came with containerd 1.7.10"
        )),
        None => Support::No(format!(
            "cannot tell from the version `{}` whether this containerd knows pinned images, which came with 1.7.10",
            version.version
        )),
    }
}

/// Major, minor and patch of `v2.4.2`, `1.6.20~ds1`, `1.7.28-k3s1`, `2.1.0-rc.1`.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.trim_start_matches('v').splitn(3, '.');
    let mut number = || {
        let part = parts.next()?;
        let digits = part
            .find(|character: char| !character.is_ascii_digit())
            .unwrap_or(part.len());
        part[..digits].parse().ok()
    };
    Some((number()?, number()?, number()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::debian("1.6.20~ds1", false)]
    #[case::just_before("v1.7.9", false)]
    #[case::first("v1.7.10", true)]
    #[case::k3s("v1.7.28-k3s1", true)]
    #[case::current("v2.4.2", true)]
    #[case::candidate("2.1.0-rc.1", true)]
    #[case::no_version("unknown", false)]
    #[case::empty("", false)]
    fn pins_from_1_7_10_on(#[case] version: &str, #[case] supported: bool) {
        let version = RuntimeVersion {
            name: "containerd".to_owned(),
            version: version.to_owned(),
        };
        assert_eq!(pins(&version).is_yes(), supported);
    }
}
