//! How a value becomes text and comes back: serde for types that are one string, and closed sets of words.

/// A word that is not in the closed set it should come from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a known {what}; use one of: {known}")]
pub struct UnknownWord {
    /// What the word should have been, for example `phase`.
    pub what: &'static str,
    /// The word as given, shortened if it is long.
    pub given: String,
    /// The words that are known, separated by commas.
    pub known: String,
}

/// Error texts end up in a status that must stay small, so what a person typed is quoted up to this many characters.
const QUOTED_CHARS: usize = 100;

/// Makes text safe to stand in an error sentence: control characters escaped, cut to a bounded length.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// Serialises as the `Display` text and deserialises by `FromStr`.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// `Display`, `FromStr` and serde for an enum that has `ALL` and `as_str`.
macro_rules! closed_set {
    ($type:ty, $what:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                <$type>::ALL
                    .into_iter()
                    .find(|word| word.as_str() == text)
                    .ok_or_else(|| $crate::UnknownWord {
                        what: $what,
                        given: $crate::text::quoted(text),
                        known: <$type>::ALL.map(<$type>::as_str).join(", "),
                    })
            }
        }

        $crate::text::serde_as_text!($type);
    };
}

pub(crate) use {closed_set, serde_as_text};

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn quoted_text_is_bounded_and_printable() {
        assert_eq!(quoted("a\nb"), "a\\nb");
        assert_eq!(quoted(&"x".repeat(5000)), format!("{}…", "x".repeat(100)));
    }
}
