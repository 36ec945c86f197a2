//! Writes the jobs, and the Events that say what people should know of them. Each write is made only while this replica
//! leads, and takes five seconds at most.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use larder_api::ImageListPullJob;
use larder_planner::workload::warm::{Owner, Step, job_name, step, wanted_job};
use larder_planner::workload::{Accounts, Workload, service_accounts};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::state::{OwnerKey, Situation};
use crate::error_chain::chain;
use crate::lease::Leadership;
use crate::run::LEASE;

/// A call takes no longer.
const CALL: Duration = Duration::from_secs(5);

/// An Event's note takes 1024 bytes.
const NOTE: usize = 1_000;

pub(super) struct Writer {
    client: Client,
    permit: watch::Receiver<Leadership>,
    /// What was said last of each owner: it is said again when it changes.
    said: Mutex<BTreeMap<OwnerKey, String>>,
}

impl Writer {
    pub(super) fn new(client: Client, permit: watch::Receiver<Leadership>) -> Self {
        Self {
            client,
            permit,
            said: Mutex::default(),
        }
    }

    /// Makes the job of an owner what it should be.
    pub(super) async fn bring_about(&self, key: &OwnerKey, situation: Situation<'_>) -> Result<(), String> {
        let Situation { owner, workloads, job } = situation;
        let mut wanted = None;
        if let Some(owner) = &owner {
            let accounts = self.accounts(&workloads).await?;
            match wanted_job(owner, &workloads, &accounts) {
                Ok(Some((job, notes))) => {
                    self.say(key, owner, &notes.join("; ")).await;
                    wanted = Some(job);
                }
                Ok(None) => self.say(key, owner, "").await,
                // The job that is there goes on with what it has.
                Err(refusal) => {
                    self.say(key, owner, &refusal.to_string()).await;
                    return Ok(());
                }
            }
        }
        let name = job_name(&key.kind, &key.name);
        let jobs = Api::<ImageListPullJob>::namespaced(self.client.clone(), &key.namespace);
        match step(wanted.as_ref(), job) {
            Step::Nothing => {}
            Step::NameTaken => {
                let text = format!("the ImageListPullJob {name} exists and is not Larder's; rename or delete it");
                if let Some(owner) = &owner {
                    self.say(key, owner, &text).await;
                }
            }
            Step::Create(job) => {
                let created = self.call(jobs.create(&PostParams::default(), &job)).await?;
                info!(owner = %key, job = name, created = created.is_some(), "a job was created for a labelled workload");
            }
            Step::Patch(patch) => {
                let patch = serde_json::from_value(patch).map_err(|error| error.to_string())?;
                let patch = Patch::<()>::Json(patch);
                self.call(jobs.patch(&name, &PatchParams::default(), &patch)).await?;
                info!(owner = %key, job = name, "the job of a labelled workload follows its templates");
            }
            Step::Delete { uid } => {
                let parameters = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(uid),
                        resource_version: None,
                    }),
                    ..DeleteParams::background()
                };
                self.call(jobs.delete(&name, &parameters)).await?;
                info!(owner = %key, job = name, "the job of a workload was deleted");
            }
        }
        if owner.is_none() {
            self.forget(key);
        }
        Ok(())
    }

    /// The pull secrets of the accounts that the pods use. One that does not exist has none.
    async fn accounts(&self, workloads: &[Workload]) -> Result<Accounts, String> {
        let mut accounts = Accounts::new();
        for (namespace, name) in service_accounts(workloads) {
            let api = Api::<ServiceAccount>::namespaced(self.client.clone(), &namespace);
            let found = timeout(CALL, api.get_opt(&name)).await;
            let found = found.map_err(|_| format!("reading the ServiceAccount {namespace}/{name} took too long"))?;
            let found = found.map_err(|error| chain(&error))?;
            let secrets = found.and_then(|account| account.image_pull_secrets);
            let names = secrets.into_iter().flatten().map(|secret| secret.name);
            accounts.insert((namespace, name), names.collect());
        }
        Ok(accounts)
    }

    /// A write. An object that is gone, or there already, is seen by the watch, and looked at then.
    async fn call<T>(&self, write: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, String> {
        if !self.permit.borrow().may_write(Instant::now()) {
            return Err("another replica may lead".to_owned());
        }
        match timeout(CALL, write).await {
            Err(_) => Err("the API server did not answer in time".to_owned()),
            Ok(Ok(done)) => Ok(Some(done)),
            Ok(Err(kube::Error::Api(status))) if [404, 409].contains(&status.code) => Ok(None),
            Ok(Err(error)) => Err(chain(&error)),
        }
    }

    /// An Event on the owner, unless it says what the last one said. An empty text takes the last one back.
    async fn say(&self, key: &OwnerKey, owner: &Owner, text: &str) {
        let is_new = {
            let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let before = said.insert(key.clone(), text.to_owned());
            !text.is_empty() && before.as_deref() != Some(text)
        };
        if !is_new || !self.permit.borrow().may_write(Instant::now()) {
            return;
        }
        let reporter = Reporter {
            controller: LEASE.to_owned(),
            instance: None,
        };
        let event = Event {
            type_: EventType::Warning,
            reason: "WarmWorkload".to_owned(),
            note: Some(text.chars().take(NOTE).collect()),
            action: "Warm".to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some(owner.api_version.clone()),
            kind: Some(owner.kind.clone()),
            name: Some(owner.name.clone()),
            namespace: Some(owner.namespace.clone()),
            uid: Some(owner.uid.clone()),
            ..ObjectReference::default()
        };
        let recorder = Recorder::new(self.client.clone(), reporter);
        if let Ok(Err(error)) = timeout(CALL, recorder.publish(&event, &about)).await {
            debug!(owner = %key, error = chain(&error), "an Event could not be written");
        }
    }

    fn forget(&self, key: &OwnerKey) {
        let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        said.remove(key);
    }
}
