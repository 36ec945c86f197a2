//! Responses to writes that the watch has not shown yet.
//!
//! A watch shows the changes of its kind in the order of their versions, so it shows each of these before anything newer, or
//! the object is in a list at least as new. If it does not, the response came from another history: the one before etcd was
//! restored. This holds also where no connection was seen to break, because the watch was away during the restore.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Seen;

/// Responses that are kept at most, while a watch is away and writes go on. Beyond that, later ones are not kept.
const MOST: usize = 4_096;

/// The responses, by version.
#[derive(Debug, Default)]
pub(super) struct Responses {
    awaited: BTreeMap<u64, Seen>,
    /// Those that came before the list under way began.
    before_list: BTreeMap<u64, Seen>,
}

impl Responses {
    /// A response showed an object.
    pub(super) fn came(&mut self, object: Seen) {
        if self.awaited.len() < MOST {
            self.awaited.insert(object.version, object);
        }
    }

    /// The newest of them.
    pub(super) fn newest(&self) -> Option<&Seen> {
        let of_both = [&self.before_list, &self.awaited].map(|all| all.values().next_back());
        of_both.into_iter().flatten().max_by_key(|response| response.version)
    }

    /// The watch showed a change. False if it has passed over a response.
    #[must_use]
    pub(super) fn shown(&mut self, version: u64) -> bool {
        let newer = self.awaited.split_off(&(version.saturating_add(1)));
        let passed = std::mem::replace(&mut self.awaited, newer);
        passed.into_keys().all(|awaited| awaited == version)
    }

    /// A list of everything begins, perhaps because the one before it failed.
    pub(super) fn list_begins(&mut self) {
        self.before_list.append(&mut self.awaited);
    }

    /// The list showed an object. False if it is older than a response from before the list.
    #[must_use]
    pub(super) fn listed(&self, object: &Seen) -> bool {
        let newer = (Bound::Excluded(object.version), Bound::Unbounded);
        let mut newer = self.before_list.range::<u64, _>(newer);
        newer.all(|(_, response)| !response.is_of(object))
    }

    /// The list is complete. What came during it is in the list or not, and cannot be told apart.
    pub(super) fn list_ends(&mut self) {
        self.before_list.clear();
        self.awaited.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, version: u64) -> Seen {
        Seen {
            namespace: None,
            name: name.to_owned(),
            version,
            deleted: false,
        }
    }

    #[test]
    fn a_watch_shows_each_response_before_anything_newer() {
        let mut responses = Responses::default();
        responses.came(at("a", 5));
        responses.came(at("b", 7));
        assert!(responses.shown(3), "both are yet to come");
        assert!(responses.shown(5));
        assert!(responses.shown(7));
        assert!(responses.shown(9), "nothing is awaited");

        responses.came(at("a", 12));
        assert!(!responses.shown(13), "12 was passed over");
        assert!(responses.shown(14), "it is told once");
    }

    #[test]
    fn a_list_shows_nothing_older_than_a_response() {
        let mut responses = Responses::default();
        responses.came(at("a", 5));
        responses.came(at("gone", 6));
        responses.list_begins();
        assert!(responses.listed(&at("a", 5)));
        assert!(responses.listed(&at("a", 8)));
        assert!(responses.listed(&at("other", 2)));
        assert!(!responses.listed(&at("a", 4)), "5 was a response");
        responses.came(at("a", 9));
        assert!(responses.listed(&at("a", 8)), "the response came during the list");
        responses.list_ends();
        assert!(responses.shown(20), "what was awaited before is forgotten");
    }

    #[test]
    fn a_list_that_fails_forgets_no_response() {
        let mut responses = Responses::default();
        responses.came(at("a", 5));
        responses.list_begins();
        responses.came(at("b", 6));
        responses.list_begins();
        assert_eq!(responses.newest(), Some(&at("b", 6)));
        assert!(!responses.listed(&at("a", 4)));
        assert!(!responses.listed(&at("b", 4)));
    }

    #[test]
    fn a_watch_that_is_away_for_long_does_not_fill_the_memory() {
        let mut responses = Responses::default();
        for version in 0..2 * MOST as u64 {
            responses.came(at("a", version));
        }
        assert_eq!(responses.awaited.len(), MOST);
        assert!(!responses.shown(u64::MAX));
    }
}
