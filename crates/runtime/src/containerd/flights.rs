//! The pulls that run at this moment, and what is known of each. No network here.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use larder_model::ImageRef;

use super::manifest::Blobs;

/// Manifests of a repository, each with the time at which containerd last touched it. The times are compared for
/// equality only, never with our clock.
pub(super) type Touched = HashMap<String, (i64, i32)>;

#[derive(Default)]
pub(super) struct Flights(Mutex<BTreeMap<u64, Flight>>);

#[derive(Clone)]
pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) image: ImageRef,
    /// The manifest or index the reference is known to point to.
    pub(super) hint: Option<String>,
    /// Manifests of the repository before the pull began.
    pub(super) before: Arc<Touched>,
    /// What the image consists of, once it is known.
    pub(super) found: Option<Arc<Found>>,
    /// Blobs that were seen complete: they may leave the content store again once they are unpacked.
    pub(super) complete: HashSet<String>,
}

pub(super) struct Found {
    /// Digest of the manifest.
    pub(super) manifest: String,
    pub(super) blobs: Blobs,
}

impl Flights {
    /// Enters a pull. It leaves when the returned guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, image: ImageRef, hint: Option<String>, before: Touched) -> FlightGuard {
        let mut flights = self.lock();
        let number = flights.last_key_value().map_or(0, |(last, _)| last + 1);
        let flight = Flight {
            number,
            image,
            hint,
            before: Arc::new(before),
            found: None,
            complete: HashSet::new(),
        };
        flights.insert(number, flight);
        FlightGuard {
            flights: Arc::clone(self),
            number,
        }
    }

    /// What is known of the pull of this image. Two pulls of the same image move the same bytes: either will do.
    pub(super) fn of(&self, image: &ImageRef) -> Option<Flight> {
        self.lock().values().find(|flight| flight.image == *image).cloned()
    }

    /// Notes what a pull fetches.
    pub(super) fn found(&self, number: u64, found: &Arc<Found>) {
        if let Some(flight) = self.lock().get_mut(&number) {
            flight.found = Some(Arc::clone(found));
        }
    }

    /// Notes blobs that are complete.
    pub(super) fn complete(&self, number: u64, blobs: impl IntoIterator<Item = String>) {
        if let Some(flight) = self.lock().get_mut(&number) {
            flight.complete.extend(blobs);
        }
    }

    /// The one manifest that this pull must be fetching: touched since it began, and not the one of another pull. `None`
    /// while that leaves none or several, or while another pull of the repository waits for its manifest too.
    pub(super) fn only_candidate(&self, flight: &Flight, now: &Touched) -> Option<String> {
        let flights = self.lock();
        let neighbours = || {
            flights.values().filter(|other| {
                other.number != flight.number
                    && other.image != flight.image
                    && other.image.registry() == flight.image.registry()
                    && other.image.repository() == flight.image.repository()
            })
        };
        if neighbours().any(|other| other.found.is_none()) {
            return None;
        }
        let taken: HashSet<&str> = neighbours()
            .filter_map(|other| other.found.as_ref())
            .map(|found| found.manifest.as_str())
            .collect();
        let mut candidates = now.iter().filter(|(digest, touched)| {
            flight.before.get(*digest) != Some(touched) && !taken.contains(digest.as_str())
        });
        let (digest, _) = candidates.next()?;
        candidates.next().is_none().then(|| digest.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Flight>> {
        // Every change above is a single insertion or removal, so the map is whole even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a pull leave when its future ends or is dropped.
pub(super) struct FlightGuard {
    flights: Arc<Flights>,
    number: u64,
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> ImageRef {
        ImageRef::parse(text).unwrap()
    }

    fn touched(entries: &[(&str, i64)]) -> Touched {
        entries
            .iter()
            .map(|(digest, second)| ((*digest).to_owned(), (*second, 0)))
            .collect()
    }

    fn settle(flights: &Flights, flight: &Flight, manifest: &str) {
        let found = Found {
            manifest: manifest.to_owned(),
            blobs: Blobs { sizes: BTreeMap::new() },
        };
        flights.found(flight.number, &Arc::new(found));
    }

    #[test]
    fn the_manifest_that_appears_after_the_start_is_the_one() {
        let flights = Arc::new(Flights::default());
        let before = touched(&[("old", 1)]);
        let guard = flights.begin(image("app:2"), None, before);
        let flight = flights.of(&image("app:2")).unwrap();
        assert_eq!(flights.only_candidate(&flight, &touched(&[("old", 1)])), None);
        assert_eq!(
            flights
                .only_candidate(&flight, &touched(&[("old", 1), ("new", 2)]))
                .as_deref(),
            Some("new")
        );
        drop(guard);
        assert!(flights.of(&image("app:2")).is_none());
    }

    /// The second try of a pull finds its manifest in the store; containerd touches it again.
    #[test]
    fn a_manifest_that_is_touched_again_is_the_one() {
        let flights = Arc::new(Flights::default());
        let _guard = flights.begin(image("app:2"), None, touched(&[("old", 1), ("again", 1)]));
        let flight = flights.of(&image("app:2")).unwrap();
        let now = touched(&[("old", 1), ("again", 5)]);
        assert_eq!(flights.only_candidate(&flight, &now).as_deref(), Some("again"));
    }

    #[test]
    fn two_pulls_of_one_repository_are_not_confused() {
        let flights = Arc::new(Flights::default());
        let _first = flights.begin(image("app:1"), None, Touched::new());
        let second = flights.begin(image("app:2"), None, Touched::new());
        let (one, two) = (
            flights.of(&image("app:1")).unwrap(),
            flights.of(&image("app:2")).unwrap(),
        );
        let now = touched(&[("a", 2)]);
        assert_eq!(flights.only_candidate(&one, &now), None, "it may be the other's");

        settle(&flights, &two, "a");
        assert_eq!(flights.only_candidate(&one, &now), None, "it is the other's");
        let now = touched(&[("a", 2), ("b", 2)]);
        assert_eq!(flights.only_candidate(&one, &now).as_deref(), Some("b"));
        drop(second);
        assert_eq!(
            flights.only_candidate(&one, &now),
            None,
            "the other's is not known any more"
        );
    }

    #[test]
    fn pulls_of_other_repositories_do_not_matter() {
        let flights = Arc::new(Flights::default());
        let _other = flights.begin(image("other:1"), None, Touched::new());
        let _guard = flights.begin(image("app:1"), None, Touched::new());
        let flight = flights.of(&image("app:1")).unwrap();
        assert_eq!(
            flights.only_candidate(&flight, &touched(&[("a", 2)])).as_deref(),
            Some("a")
        );
    }
}
