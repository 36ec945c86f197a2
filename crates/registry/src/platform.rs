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

    /// Whether a container of an image built for `self` may start on `machine` without emulation. `false` is said only
    /// where that is certain: a platform that is not known here, as that of a WebAssembly module, may have its own way.
    pub fn runs_on(&self, machine: &Platform) -> bool {
        let architectures = (
            known_architecture(&self.architecture),
            known_architecture(&machine.architecture),
        );
        let (Some(built_for), Some(there)) = architectures else {
            return true;
        };
        let both = |os: &str| [self, machine].map(|platform| platform.os.eq_ignore_ascii_case(os));
        match (both("linux"), both("windows")) {
            ([true, true], _) => {
                built_for == there || matches!((built_for, there), ("386", "amd64") | ("arm", "arm64"))
            }
            (_, [image, machine]) => image == machine,
        }
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

/// The usual name of an architecture. Image configs hold whatever their builder wrote, runtimes take it all the same.
fn known_architecture(name: &str) -> Option<&'static str> {
    Some(match &*name.to_ascii_lowercase() {
        "amd64" | "x86_64" | "x86-64" | "x64" => "amd64",
        "386" | "i386" | "i486" | "i586" | "i686" | "x86" => "386",
        "arm64" | "aarch64" => "arm64",
        "arm" | "armhf" | "armel" | "armv5l" | "armv6l" | "armv7l" => "arm",
        "ppc64le" | "ppc64el" | "powerpc64le" => "ppc64le",
        "s390x" => "s390x",
        "riscv64" => "riscv64",
        _ => return None,
    })
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

    #[rstest]
    #[case::same("linux/amd64", "linux/amd64", true)]
    #[case::foreign("linux/arm64", "linux/amd64", false)]
    #[case::foreign_the_other_way("linux/amd64", "linux/arm64", false)]
    #[case::rare_and_foreign("linux/s390x", "linux/ppc64le", false)]
    #[case::amd64_runs_386("linux/386", "linux/amd64", true)]
    #[case::a_386_does_not_run_amd64("linux/amd64", "linux/386", false)]
    #[case::arm64_runs_arm("linux/arm", "linux/arm64", true)]
    #[case::arm_does_not_run_arm64("linux/arm64", "linux/arm", false)]
    #[case::amd64_does_not_run_arm("linux/arm", "linux/amd64", false)]
    #[case::x86_64("linux/x86_64", "linux/amd64", true)]
    #[case::x86_with_a_dash("linux/x86-64", "linux/amd64", true)]
    #[case::i386("linux/i386", "linux/amd64", true)]
    #[case::aarch64("linux/aarch64", "linux/arm64", true)]
    #[case::armhf("linux/armhf", "linux/arm64", true)]
    #[case::armel("linux/armel", "linux/arm", true)]
    #[case::ppc64el("linux/ppc64el", "linux/ppc64le", true)]
    #[case::large_letters("Linux/AMD64", "linux/amd64", true)]
    #[case::another_name_is_foreign_all_the_same("linux/aarch64", "linux/amd64", false)]
    #[case::wasm("wasi/wasm", "linux/amd64", true)]
    #[case::wasm_preview_1("wasip1/wasm", "linux/arm64", true)]
    #[case::wasm_that_says_linux("linux/wasm", "linux/amd64", true)]
    #[case::an_architecture_unheard_of("linux/loong64", "linux/amd64", true)]
    #[case::a_machine_unheard_of("linux/amd64", "linux/loong64", true)]
    #[case::windows_image("windows/amd64", "linux/amd64", false)]
    #[case::windows_machine("linux/amd64", "windows/amd64", false)]
    #[case::windows_among_themselves("windows/amd64", "windows/arm64", true)]
    #[case::another_system_may_have_its_way("freebsd/amd64", "linux/arm64", true)]
    fn may_run(#[case] image: &str, #[case] machine: &str, #[case] want: bool) {
        let platform = |text: &str| {
            let (os, architecture) = text.split_once('/').unwrap();
            Platform::new(os, architecture, None)
        };
        assert_eq!(platform(image).runs_on(&platform(machine)), want);
    }

    #[test]
    fn prints_as_people_write_it() {
        assert_eq!(Platform::new("linux", "arm", Some("v7")).to_string(), "linux/arm/v7");
        assert_eq!(Platform::new("linux", "amd64", None).to_string(), "linux/amd64");
        assert!(!Platform::of_this_machine().architecture.is_empty());
    }
}
