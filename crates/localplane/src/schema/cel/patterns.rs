//! Regular expressions of rules, compiled once: CEL's own `matches` compiles its pattern at every evaluation, which a list
//! of 255 images pays 765 times.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use regex::Regex;

/// Patterns that are kept. Rules write theirs as literals, so that there are a few dozen; one that is computed from the
/// object must not fill the memory.
const KEPT: usize = 256;

/// The patterns seen so far.
#[derive(Clone, Default)]
pub(super) struct Patterns {
    compiled: Arc<Mutex<HashMap<String, Regex>>>,
}

impl Patterns {
    /// Whether `text` has a match of `pattern`.
    pub(super) fn is_match(&self, pattern: &str, text: &str) -> Result<bool, regex::Error> {
        Ok(self.get(pattern)?.is_match(text))
    }

    fn get(&self, pattern: &str) -> Result<Regex, regex::Error> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiled.get(pattern) {
            return Ok(known.clone());
        }
        let new = Regex::new(pattern)?;
        if compiled.len() < KEPT {
            compiled.insert(pattern.to_owned(), new.clone());
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_compiled_once_and_the_memory_stays_bounded() {
        let patterns = Patterns::default();
        for number in 0..2 * KEPT {
            let pattern = format!("^a{number}$");
            assert!(patterns.is_match(&pattern, &format!("a{number}")).unwrap());
            assert!(!patterns.is_match(&pattern, "a").unwrap());
        }
        assert_eq!(patterns.compiled.lock().unwrap().len(), KEPT);
        assert!(patterns.is_match("(", "a").is_err());
    }
}
