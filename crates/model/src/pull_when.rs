//! The pull rule of an entry: always, or only if the image is not there yet.

use std::fmt;
use std::str::FromStr;

use crate::UnknownWord;
use crate::text::{quoted, serde_as_text};

/// `imagePullPolicy` of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PullWhen {
    /// Pull, whatever is there: a tag may have moved. Also what an absent or empty policy means.
    #[default]
    Always,
    /// An image that is there already is a success.
    IfNotPresent,
}

impl PullWhen {
    /// Every rule.
    pub const ALL: [PullWhen; 2] = [PullWhen::Always, PullWhen::IfNotPresent];

    /// The word in `imagePullPolicy`.
    pub const fn as_str(self) -> &'static str {
        match self {
            PullWhen::Always => "Always",
            PullWhen::IfNotPresent => "IfNotPresent",
        }
    }
}

impl fmt::Display for PullWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PullWhen {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "Always" => Ok(PullWhen::Always),
            "IfNotPresent" => Ok(PullWhen::IfNotPresent),
            other => Err(UnknownWord {
                what: "imagePullPolicy",
                given: quoted(other),
                known: PullWhen::ALL.map(PullWhen::as_str).join(", "),
            }),
        }
    }
}

serde_as_text!(PullWhen);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::empty("", PullWhen::Always)]
    #[case::always("Always", PullWhen::Always)]
    #[case::if_not_present("IfNotPresent", PullWhen::IfNotPresent)]
    fn reads(#[case] text: &str, #[case] want: PullWhen) {
        assert_eq!(text.parse(), Ok(want));
        assert_eq!(serde_json::from_value::<PullWhen>(text.into()).unwrap(), want);
    }

    #[rstest]
    #[case::never("Never")]
    #[case::lower_case("always")]
    #[case::space(" ")]
    fn refuses(#[case] text: &str) {
        let error = text.parse::<PullWhen>().unwrap_err();
        assert!(
            error.to_string().ends_with("use one of: Always, IfNotPresent"),
            "{error}"
        );
    }
}
