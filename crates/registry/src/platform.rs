//! Operating system and architecture, and which of an image's builds suits a machine best.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an image was built for, or what a machine is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`
    pub os: String,
    /// `amd64`, `arm64`, `arm`
    pub architecture: String,
    /// `v7`; absent means the architecture's usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// A platform in the words of image manifests.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
        }
    }

    /// The machine this program was built for.
    pub fn of_this_machine() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "x86" => ("386", None),
            "aarch64" => ("arm64", None),
            "arm" => ("arm", Some("v7")),
            "powerpc64" => ("ppc64le", None),
            "loongarch64" => ("loong64", None),
            other => (other, None),
        };
        Self::new(std::env::consts::OS, architecture, variant)
    }

    /// How well an image for `self` runs on `machine`: `None` not at all, else the lower the better.
    pub fn distance_to(&self, machine: &Platform) -> Option<u32> {
        if self.os != machine.os || self.architecture != machine.architecture {
            return None;
        }
        // A newer machine runs what was built for an older one, never the other way round.
        machine.level()?.checked_sub(self.level()?)
    }

    /// The variant as a number; an unknown one fits nobody.
    fn level(&self) -> Option<u32> {
        match (
            &*self.architecture,
            self.variant.as_deref().filter(|variant| !variant.is_empty()),
        ) {
            ("arm", None) => Some(7),
            ("arm64", None) => Some(8),
            (_, None) => Some(1),
            (_, Some(variant)) => variant.strip_prefix('v').unwrap_or(variant).parse().ok(),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match self.variant.as_deref() {
            Some(variant) if !variant.is_empty() => write!(f, "/{variant}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::same(("amd64", None), ("amd64", None), Some(0))]
    #[case::other_architecture(("arm64", None), ("amd64", None), None)]
    #[case::arm64_is_v8(("arm64", Some("v8")), ("arm64", None), Some(0))]
    #[case::empty_variant(("arm64", Some("")), ("arm64", None), Some(0))]
    #[case::older_arm_runs(("arm", Some("v6")), ("arm", Some("v7")), Some(1))]
    #[case::newer_arm_does_not(("arm", Some("v7")), ("arm", Some("v6")), None)]
    #[case::amd64_v3_needs_a_machine_that_says_so(("amd64", Some("v3")), ("amd64", None), None)]
    #[case::amd64_v1_is_the_usual(("amd64", Some("v1")), ("amd64", None), Some(0))]
    #[case::unknown_variant(("arm", Some("best")), ("arm", None), None)]
    fn suits(#[case] image: (&str, Option<&str>), #[case] machine: (&str, Option<&str>), #[case] want: Option<u32>) {
        let image = Platform::new("linux", image.0, image.1);
        assert_eq!(image.distance_to(&Platform::new("linux", machine.0, machine.1)), want);
    }

    #[test]
    fn another_system_does_not_suit() {
        assert_eq!(
            Platform::new("windows", "amd64", None).distance_to(&Platform::new("linux", "amd64", None)),
            None
        );
    }

    #[test]
    fn prints_as_people_write_it() {
        assert_eq!(Platform::new("linux", "arm", Some("v7")).to_string(), "linux/arm/v7");
        assert_eq!(Platform::new("linux", "amd64", None).to_string(), "linux/amd64");
        assert!(!Platform::of_this_machine().architecture.is_empty());
    }
}
