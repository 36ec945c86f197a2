//! What a node looks at before it pulls.

use std::fmt;

/// A check before a pull.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Whether the processors are not too busy.
    Cpu,
    /// Whether enough memory is free.
    Memory,
    /// Whether the image fits on the filesystem of images.
    Disk,
    /// A word that is none of these. The node that is asked for it refuses to pull.
    Unknown(String),
}

impl Check {
    /// The word in `checks` and `checkItems`.
    pub fn as_str(&self) -> &str {
        match self {
            Check::Cpu => "cpu",
            Check::Memory => "mem",
            Check::Disk => "disk",
            Check::Unknown(word) => word,
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<&str> for Check {
    fn from(text: &str) -> Self {
        match text {
            "cpu" => Check::Cpu,
            "mem" => Check::Memory,
            "disk" => Check::Disk,
            other => Check::Unknown(other.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back() {
        for check in [Check::Cpu, Check::Memory, Check::Disk, Check::Unknown("gpu".to_owned())] {
            assert_eq!(Check::from(check.as_str()), check);
        }
    }
}
