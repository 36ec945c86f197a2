//! The pulls that run at this moment, and what is known of each. No network here.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use larder_model::ImageRef;
use larder_registry::manifest::PlatformImage;

use super::manifest::Blobs;

/// A moment on this machine's clock: seconds and nanoseconds.
pub(super) type Moment = (i64, i32);

/// A manifest of which somebody is downloading a blob.
pub(super) struct Candidate {
    pub(super) digest: String,
    /// When containerd last touched it. Every pull touches its manifest, even one that was there.
    pub(super) touched: Moment,
}

#[derive(Default)]
pub(super) struct Flights(Mutex<BTreeMap<u64, Flight>>);

#[derive(Clone)]
pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) image: ImageRef,
    /// The manifest or index that the reference names, where it is one by digest.
    pub(super) digest: Option<String>,
    /// When it began.
    pub(super) since: Moment,
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
    pub(super) fn begin(self: &Arc<Self>, image: ImageRef, digest: Option<String>, since: Moment) -> FlightGuard {
        let mut flights = self.lock();
        let number = flights.last_key_value().map_or(0, |(last, _)| last + 1);
        let flight = Flight {
            number,
            image,
            digest,
            since,
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
    ///
    /// The clock is the one that containerd on the same machine reads. Where it was set back in between, nothing is
    /// found and no bytes are shown; where it was set forward, manifests of before are no candidates, because nobody
    /// downloads anything of them.
    pub(super) fn only_candidate(&self, flight: &Flight, candidates: &[Candidate]) -> Option<String> {
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
        let mut fitting = candidates
            .iter()
            .filter(|candidate| flight.since <= candidate.touched && !taken.contains(candidate.digest.as_str()));
        let only = fitting.next()?;
        fitting.next().is_none().then(|| only.digest.clone())
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

impl FlightGuard {
    /// What the image consists of, if it was found out meanwhile.
    pub(super) fn found(&self) -> Option<Arc<Found>> {
        self.flights.lock().get(&self.number)?.found.clone()
    }

    /// Notes what the image consists of, as the registry told.
    pub(super) fn knows(&self, image: &PlatformImage) {
        let Some(document) = image.documents.last() else { return };
        let mut seen = HashSet::new();
        let blobs = image.blobs().filter(|blob| seen.insert(&blob.digest));
        let found = Found {
            manifest: document.descriptor.digest.to_string(),
            blobs: Blobs {
                sizes: blobs.map(|blob| (blob.digest.to_string(), blob.size)).collect(),
            },
        };
        self.flights.found(self.number, &Arc::new(found));
    }

    /// When it began.
    pub(super) fn since(&self) -> Option<Moment> {
        self.flights.lock().get(&self.number).map(|flight| flight.since)
    }
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

    const BEGAN: Moment = (100, 0);

    fn active(digest: &str, second: i64) -> Candidate {
        Candidate {
            digest: digest.to_owned(),
            touched: (second, 0),
        }
    }

    fn settle(flights: &Flights, flight: &Flight, manifest: &str) {
        let found = Found {
            manifest: manifest.to_owned(),
            blobs: Blobs { sizes: Vec::new() },
        };
        flights.found(flight.number, &Arc::new(found));
    }

    #[test]
    fn the_manifest_that_is_touched_after_the_start_is_the_one() {
        let flights = Arc::new(Flights::default());
        let guard = flights.begin(image("app:2"), None, BEGAN);
        let flight = flights.of(&image("app:2")).unwrap();
        assert_eq!(flights.only_candidate(&flight, &[active("old", 99)]), None);
        let both = [active("old", 99), active("new", 101)];
        assert_eq!(flights.only_candidate(&flight, &both).as_deref(), Some("new"));
        drop(guard);
        assert!(flights.of(&image("app:2")).is_none());
    }

    #[test]
    fn two_pulls_of_one_repository_are_not_confused() {
        let flights = Arc::new(Flights::default());
        let _first = flights.begin(image("app:1"), None, BEGAN);
        let second = flights.begin(image("app:2"), None, BEGAN);
        let (one, two) = (
            flights.of(&image("app:1")).unwrap(),
            flights.of(&image("app:2")).unwrap(),
        );
        assert_eq!(
            flights.only_candidate(&one, &[active("a", 101)]),
            None,
            "it may be the other's"
        );

        settle(&flights, &two, "a");
        assert_eq!(
            flights.only_candidate(&one, &[active("a", 101)]),
            None,
            "it is the other's"
        );
        let both = [active("a", 101), active("b", 101)];
        assert_eq!(flights.only_candidate(&one, &both).as_deref(), Some("b"));
        drop(second);
        assert_eq!(
            flights.only_candidate(&one, &both),
            None,
            "the other's is not known any more"
        );
    }

    #[test]
    fn pulls_of_other_repositories_do_not_matter() {
        let flights = Arc::new(Flights::default());
        let _other = flights.begin(image("other:1"), None, BEGAN);
        let _guard = flights.begin(image("app:1"), None, BEGAN);
        let flight = flights.of(&image("app:1")).unwrap();
        assert_eq!(
            flights.only_candidate(&flight, &[active("a", 101)]).as_deref(),
            Some("a")
        );
    }
}
