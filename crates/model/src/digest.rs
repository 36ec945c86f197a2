//! Content digests: `sha256:<64 hex>` and its two longer sisters. Computing one is done elsewhere.

use std::fmt;
use std::str::FromStr;

use crate::text::{quoted, serde_as_text};

/// The hash functions that registries and runtimes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256, what practically every image has.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    const ALL: [Algorithm; 3] = [Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];

    /// The name in front of the colon.
    pub const fn as_str(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha384 => "sha384",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// How many hexadecimal digits follow the colon.
    pub const fn hex_len(self) -> usize {
        match self {
            Algorithm::Sha256 => 64,
            Algorithm::Sha384 => 96,
            Algorithm::Sha512 => 128,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The digest of some content, `algorithm:hex` in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// There is no colon between algorithm and digits.
    #[error("digest `{0}` has no algorithm; write it as sha256:<64 hexadecimal digits>")]
    NoAlgorithm(String),
    /// The algorithm is none that registries use.
    #[error("digest algorithm `{0}` is not supported; use sha256, sha384 or sha512")]
    UnknownAlgorithm(String),
    /// Too few or too many digits for the algorithm.
    #[error("a {algorithm} digest has {} hexadecimal digits, this one has {found}", .algorithm.hex_len())]
    WrongLength {
        /// The algorithm that was named.
        algorithm: Algorithm,
        /// Number of characters after the colon.
        found: usize,
    },
    /// Something other than 0-9 and a-f.
    #[error("digest digits `{0}` are not lower-case hexadecimal")]
    NotHex(String),
}

impl Digest {
    /// Reads `algorithm:hex`.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let (name, hex) = text
            .split_once(':')
            .ok_or_else(|| DigestError::NoAlgorithm(quoted(text)))?;
        let algorithm = Algorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.as_str() == name)
            .ok_or_else(|| DigestError::UnknownAlgorithm(quoted(name)))?;
        Self::from_hex(algorithm, hex)
    }

    /// The SHA-256 digest with these hexadecimal digits.
    pub fn sha256(hex: &str) -> Result<Self, DigestError> {
        Self::from_hex(Algorithm::Sha256, hex)
    }

    fn from_hex(algorithm: Algorithm, hex: &str) -> Result<Self, DigestError> {
        let found = hex.chars().count();
        if found != algorithm.hex_len() {
            return Err(DigestError::WrongLength { algorithm, found });
        }
        if !is_lower_hex(hex) {
            return Err(DigestError::NotHex(quoted(hex)));
        }
        Ok(Self {
            algorithm,
            hex: hex.to_owned(),
        })
    }

    /// Which hash function made it.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

pub(crate) fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.hex)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

serde_as_text!(Digest);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::sha256("sha256", 64)]
    #[case::sha384("sha384", 96)]
    #[case::sha512("sha512", 128)]
    fn every_algorithm_prints_what_it_read(#[case] name: &str, #[case] len: usize) {
        let text = format!("{name}:{}", "0a".repeat(len / 2));
        let digest = Digest::parse(&text).unwrap();
        assert_eq!(digest.to_string(), text);
        assert_eq!(digest.algorithm().as_str(), name);
        assert_eq!(digest.hex().len(), len);
        assert_eq!(serde_json::to_string(&digest).unwrap(), format!("\"{text}\""));
    }

    #[rstest]
    #[case::empty("", DigestError::NoAlgorithm(String::new()))]
    #[case::digits_alone("abc", DigestError::NoAlgorithm("abc".into()))]
    #[case::md5("md5:d41d8cd98f00b204e9800998ecf8427e", DigestError::UnknownAlgorithm("md5".into()))]
    #[case::upper_case_name("SHA256:aa", DigestError::UnknownAlgorithm("SHA256".into()))]
    #[case::short("sha256:ab", DigestError::WrongLength { algorithm: Algorithm::Sha256, found: 2 })]
    #[case::length_of_another("sha512:aa", DigestError::WrongLength { algorithm: Algorithm::Sha512, found: 2 })]
    fn refuses(#[case] text: &str, #[case] want: DigestError) {
        assert_eq!(Digest::parse(text), Err(want));
    }

    #[rstest]
    #[case::upper_case("AB")]
    #[case::letters("zz")]
    #[case::two_byte_letters("éé")]
    fn refuses_digits_that_are_not_lower_case_hex(#[case] pair: &str) {
        let text = format!("sha256:{}", pair.repeat(32));
        assert!(matches!(Digest::parse(&text), Err(DigestError::NotHex(_))), "{text}");
    }

    proptest! {
        #[test]
        fn never_panics_and_prints_what_it_read(text in ".{0,140}") {
            if let Ok(digest) = Digest::parse(&text) {
                prop_assert_eq!(digest.to_string(), text);
            }
        }
    }
}
