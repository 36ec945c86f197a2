//! Which credentials fit an image, and in which order to try them: the kubelet's rules.
//!
//! An entry's key is a registry with an optional port and path, and may hold globs in its host labels. It fits an image
//! if the ports are equal, the hosts have the same number of labels and match label by label, and the key's path is a
//! prefix of the image's. Of all that fit, more specific keys come first, and every one is a candidate.

mod glob;
mod pattern;

use std::collections::BTreeMap;

use larder_model::ImageRef;

use crate::Credential;
use crate::docker_config::Entry;
pub use pattern::{ImagePattern, PatternError};

/// Under this host docker's files keep what belongs to Docker Hub.
const DOCKER_HUB_KEY: &str = "index.docker.io";
const DOCKER_HUB: &str = "docker.io";

/// A set of credentials, each under the pattern of the images it is for.
#[derive(Clone, Default)]
pub struct Keyring {
    /// Sorted by key; read backwards, a longer key stands before its own prefix and a glob after plain text.
    entries: BTreeMap<ImagePattern, Vec<Credential>>,
}

impl Keyring {
    /// Adds entries from a pull secret, a configuration file or a plugin.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            let known = self.entries.entry(entry.pattern).or_default();
            if !known.contains(&entry.credential) {
                known.push(entry.credential);
            }
        }
    }

    /// The credentials to try for an image, best first; none means that it is pulled anonymously.
    pub fn lookup(&self, image: &ImageRef) -> Vec<Credential> {
        self.lookup_at(image.registry(), image.repository())
    }

    /// The same for a repository at a host, which may be a mirror of the registry in the image's name.
    pub(crate) fn lookup_at(&self, registry: &str, repository: &str) -> Vec<Credential> {
        let mut found: Vec<Credential> = Vec::new();
        let fitting = self
            .entries
            .iter()
            .rev()
            .filter(|(pattern, _)| pattern.matches(registry, repository));
        for credential in fitting.flat_map(|(_, credentials)| credentials) {
            if !found.contains(credential) {
                found.push(credential.clone());
            }
        }
        if found.is_empty() && registry == DOCKER_HUB {
            let hub = self
                .entries
                .iter()
                .find(|(pattern, _)| pattern.as_str() == DOCKER_HUB_KEY);
            found.extend(hub.into_iter().flat_map(|(_, credentials)| credentials.iter().cloned()));
        }
        found
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn keyring(keys: &[&str]) -> Keyring {
        let mut keyring = Keyring::default();
        keyring.extend(keys.iter().map(|key| Entry {
            pattern: ImagePattern::parse(key).unwrap(),
            credential: Credential::basic(*key, "secret"),
        }));
        keyring
    }

    fn users(keyring: &Keyring, image: &str) -> Vec<String> {
        keyring
            .lookup(&ImageRef::parse(image).unwrap())
            .into_iter()
            .map(|c| c.username)
            .collect()
    }

    #[rstest]
    #[case::longer_path_first(&["q.io", "q.io/coreos", "q.io/coreos/etcd"], "q.io/coreos/etcd", &["q.io/coreos/etcd", "q.io/coreos", "q.io"])]
    #[case::plain_host_before_glob(&["*.e.com", "r.e.com"], "r.e.com/x", &["r.e.com", "*.e.com"])]
    #[case::only_what_fits(&["a.io", "b.io"], "b.io/x", &["b.io"])]
    #[case::none(&["a.io"], "b.io/x", &[])]
    #[case::hub_by_its_own_name(&["docker.io"], "nginx", &["docker.io"])]
    #[case::hub_by_the_old_index_key(&["https://index.docker.io/v1/"], "nginx", &["https://index.docker.io/v1/"])]
    #[case::hub_by_the_old_index_key_v2(&["https://index.docker.io/v2/"], "foo/bar", &["https://index.docker.io/v2/"])]
    #[case::old_index_key_only_if_nothing_else(&["docker.io", "https://index.docker.io/v1/"], "nginx", &["docker.io"])]
    #[case::old_index_key_is_not_for_others(&["https://index.docker.io/v1/"], "q.io/x", &[])]
    #[case::hub_path(&["docker.io/foo", "docker.io"], "foo/bar", &["docker.io/foo", "docker.io"])]
    fn finds_in_order(#[case] keys: &[&str], #[case] image: &str, #[case] want: &[&str]) {
        assert_eq!(users(&keyring(keys), image), want);
    }

    #[test]
    fn one_key_holds_several_credentials_and_repeats_are_left_out() {
        let mut keyring = Keyring::default();
        for (key, user) in [("a.io", "x"), ("https://a.io", "y"), ("a.io/v2/", "x"), ("*.io", "y")] {
            let pattern = ImagePattern::parse(key).unwrap();
            keyring.extend([Entry {
                pattern,
                credential: Credential::basic(user, "p"),
            }]);
        }
        assert_eq!(users(&keyring, "a.io/b"), ["x", "y"]);
    }
}
