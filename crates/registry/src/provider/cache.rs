//! Answers of one plugin, kept as long as it said. Counted in monotonic time, so a wrong clock harms nothing.

use std::collections::HashMap;
use std::time::Duration;

use larder_model::ImageRef;
use tokio::time::Instant;

use crate::Keyring;

/// A node asks for some dozens of images; beyond this many answers the one that ends first makes room.
const MAX_ANSWERS: usize = 256;

/// For what else an answer counts.
#[derive(Clone, Copy)]
pub(super) enum CacheKey {
    /// For this image alone.
    Image,
    /// For every image of the registry.
    Registry,
    /// For every image that the plugin knows.
    Global,
}

impl CacheKey {
    fn text(self, image: &ImageRef) -> String {
        match self {
            CacheKey::Image => format!("{}/{}", image.registry(), image.repository()),
            CacheKey::Registry => image.registry().to_owned(),
            CacheKey::Global => String::new(),
        }
    }
}

#[derive(Default)]
pub(super) struct Cache {
    answers: HashMap<String, (Instant, Keyring)>,
}

impl Cache {
    pub(super) fn get(&self, image: &ImageRef, now: Instant) -> Option<Keyring> {
        [CacheKey::Image, CacheKey::Registry, CacheKey::Global]
            .into_iter()
            .find_map(|key| {
                let (ends, keyring) = self.answers.get(&key.text(image))?;
                (now < *ends).then(|| keyring.clone())
            })
    }

    pub(super) fn insert(&mut self, key: CacheKey, image: &ImageRef, keyring: Keyring, keep: Duration, now: Instant) {
        self.answers.retain(|_, (ends, _)| now < *ends);
        let Some(ends) = now.checked_add(keep).filter(|ends| now < *ends) else {
            return;
        };
        if MAX_ANSWERS <= self.answers.len() {
            let first = self
                .answers
                .iter()
                .min_by_key(|(_, (ends, _))| *ends)
                .map(|(key, _)| key.clone());
            first.and_then(|key| self.answers.remove(&key));
        }
        self.answers.insert(key.text(image), (ends, keyring));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_bounded_and_drops_what_ended() {
        let mut cache = Cache::default();
        let start = Instant::now();
        for n in 0..400 {
            let image = ImageRef::parse(&format!("a.io/x{n}")).unwrap();
            cache.insert(
                CacheKey::Image,
                &image,
                Keyring::default(),
                Duration::from_secs(60 + n),
                start,
            );
        }
        assert_eq!(cache.answers.len(), MAX_ANSWERS);
        assert!(cache.get(&ImageRef::parse("a.io/x0").unwrap(), start).is_none());
        assert!(cache.get(&ImageRef::parse("a.io/x399").unwrap(), start).is_some());
        let later = start + Duration::from_secs(10_000);
        let image = ImageRef::parse("a.io/y").unwrap();
        cache.insert(
            CacheKey::Global,
            &image,
            Keyring::default(),
            Duration::from_secs(1),
            later,
        );
        assert_eq!(cache.answers.len(), 1);
    }
}
