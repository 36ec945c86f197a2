//! Whether the API server still has the history that was seen.
//!
//! When etcd is restored from a copy, resource versions go on from an older one. A watch that resumes at a newer one is
//! accepted: it stays silent until the versions have grown past it, and then shows what comes after. Nothing tells it what
//! was lost. The newest version alone does not show this for long either, because every write of anybody makes it grow.
//! So the newest object that was seen is remembered, and the API server is asked for it as it was at exactly its version:
//! in another history, something else was written then.

mod responses;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{Api, GetParams, ListParams, ObjectList, ObjectMeta, PartialObjectMeta, VersionMatch};
use kube::core::Request;
use kube::runtime::watcher::Event;
use kube::{Client, Error, Resource};
use tokio::time::timeout;

use self::responses::Responses;
use crate::engine::revision;

/// A comparison takes no longer.
const LIMIT: Duration = Duration::from_secs(5);

/// Failures without a comparison in between of which each is remembered; beyond that, the latest ones.
const INTERRUPTIONS: usize = 16;

/// What was seen of the objects of one kind: by its watch, and in responses to writes.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Arc<Mutex<Witnesses>>);

/// The newest objects that were seen. After a failure the API server may be another one than before, so what was seen
/// before it is kept until it has been compared.
#[derive(Debug, Default)]
struct Witnesses {
    before_failures: VecDeque<Seen>,
    /// The newest that the watch showed.
    newest: Option<Seen>,
    responses: Responses,
}

/// An object as it was at one resource version.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    namespace: Option<String>,
    name: String,
    version: u64,
    /// It was deleted at that version.
    deleted: bool,
}

/// How the API server's history compares with what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// It is the same, or what was seen is too long ago to tell.
    Same,
    /// It is another: etcd was restored from a copy.
    Other,
    /// The API server could not be asked.
    Unanswered,
}

impl History {
    /// A response showed an object.
    pub(super) fn answered(&self, object: &ObjectMeta) {
        let object = Seen::of(object, false);
        let mut witnesses = self.lock();
        if witnesses
            .newest
            .as_ref()
            .is_none_or(|newest| newest.version < object.version)
        {
            witnesses.responses.came(object);
        }
    }

    /// The watch showed an event. What it shows may be proof of another history.
    pub(super) fn shown<K: Resource>(&self, event: &Event<K>) -> Comparison {
        let mut witnesses = self.lock();
        let same = match event {
            Event::Init => {
                witnesses.responses.list_begins();
                true
            }
            Event::InitApply(object) => {
                let object = Seen::of(object.meta(), false);
                let same = witnesses.responses.listed(&object);
                witnesses.take_in(object);
                same
            }
            Event::InitDone => {
                witnesses.responses.list_ends();
                true
            }
            Event::Apply(object) | Event::Delete(object) => {
                let object = Seen::of(object.meta(), matches!(event, Event::Delete(_)));
                let same = witnesses.responses.shown(object.version);
                witnesses.take_in(object);
                same
            }
        };
        if same { Comparison::Same } else { Comparison::Other }
    }

    /// The watch failed.
    pub(super) fn interrupted(&self) {
        let mut witnesses = self.lock();
        if witnesses.before_failures.back() != witnesses.newest.as_ref() {
            let newest = witnesses.newest.clone();
            witnesses.before_failures.extend(newest);
        }
        if INTERRUPTIONS < witnesses.before_failures.len() {
            witnesses.before_failures.pop_front();
        }
    }

    /// Compares everything that was seen with the history of the API server.
    pub(super) async fn compare<K>(&self, api: &Api<K>) -> Comparison
    where
        K: Resource<DynamicType = ()> + Clone,
    {
        let witnesses = self.lock().all();
        for seen in &witnesses {
            match timeout(LIMIT, seen.is_known_to(api)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Comparison::Other,
                Ok(Err(_)) | Err(_) => return Comparison::Unanswered,
            }
        }
        let mut now = self.lock();
        now.before_failures.retain(|seen| !witnesses.contains(seen));
        Comparison::Same
    }

    fn lock(&self) -> MutexGuard<'_, Witnesses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witnesses {
    fn all(&self) -> Vec<Seen> {
        let before = self.before_failures.iter();
        let all = before.chain(&self.newest).chain(self.responses.newest());
        let mut all: Vec<Seen> = all.cloned().collect();
        all.dedup();
        all
    }

    fn take_in(&mut self, shown: Seen) {
        if self.newest.as_ref().is_none_or(|newest| newest.version < shown.version) {
            self.newest = Some(shown);
        }
    }
}

impl Seen {
    fn of(object: &ObjectMeta, deleted: bool) -> Self {
        Self {
            namespace: object.namespace.clone(),
            name: object.name.clone().unwrap_or_default(),
            version: revision(object),
            deleted,
        }
    }

    /// Both are of the same object.
    fn is_of(&self, other: &Self) -> bool {
        (&self.namespace, &self.name) == (&other.namespace, &other.name)
    }

    async fn is_known_to<K>(&self, api: &Api<K>) -> Result<bool, Error>
    where
        K: Resource<DynamicType = ()> + Clone,
    {
        let client = api.clone().into_client();
        // A list without a version is read from etcd, not from a cache that may be behind.
        let now = list(&client, api.resource_url(), &ListParams::default().limit(1)).await?;
        if version(&now).is_some_and(|version| version < self.version) {
            return Ok(false);
        }
        // With both name and namespace, a single key is read.
        let url = K::url_path(&(), self.namespace.as_deref());
        let then = ListParams::default()
            .fields(&format!("metadata.name={}", self.name))
            .at(&self.version.to_string())
            .matching(VersionMatch::Exact);
        match list(&client, &url, &then).await {
            // A server that does not know the parameter answers with another version.
            Ok(then) if version(&then) != Some(self.version) => Ok(true),
            Ok(then) if self.deleted => Ok(then.items.is_empty()),
            Ok(then) => Ok(then
                .items
                .iter()
                .any(|object| revision(&object.metadata) == self.version)),
            Err(Error::Api(status)) if status.code == 410 => self.was_not_put_back(&client, &url).await,
            Err(error) => Err(error),
        }
    }

    /// Whether the object has at least this version now, or is gone: all that can be told of a version that was compacted.
    async fn was_not_put_back(&self, client: &Client, url: &str) -> Result<bool, Error> {
        let request = Request::new(url).get_metadata(&self.name, &GetParams::default());
        let object = client.request::<Metadata>(request.map_err(Error::BuildRequest)?).await;
        match object {
            Ok(object) => Ok(self.version <= revision(&object.metadata)),
            Err(Error::Api(status)) if status.code == 404 => Ok(true),
            Err(error) => Err(error),
        }
    }
}

type Metadata = PartialObjectMeta<()>;

async fn list(client: &Client, url: &str, params: &ListParams) -> Result<ObjectList<Metadata>, Error> {
    let request = Request::new(url).list_metadata(params);
    client.request(request.map_err(Error::BuildRequest)?).await
}

fn version(list: &ObjectList<Metadata>) -> Option<u64> {
    list.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod real_servers;
