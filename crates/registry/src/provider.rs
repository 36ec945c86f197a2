//! The kubelet's credential-provider plugins: programs on this machine that know credentials for some images.
//!
//! Which plugins there are comes from a `CredentialProviderConfig`; a plugin is asked over its standard input and
//! answers on its standard output. Answers are cached as the plugin says. A plugin that fails, hangs or talks nonsense
//! is reported and hides neither another plugin nor another source. What a plugin prints is never logged.

mod cache;
mod config;
mod duration;
mod exec;
mod protocol;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_model::ImageRef;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::{Credential, Keyring};
use cache::Cache;
pub use config::{ConfigError, PluginConfig, ProviderConfig};
pub use exec::ExecError;
pub use protocol::AnswerError;

/// The kubelet gives a plugin a minute; a node that pulls three images at once should not wait longer for one of them.
const PLUGIN_TIMEOUT: Duration = Duration::from_mins(1);

/// All plugins of this machine.
pub struct Providers {
    plugins: Vec<Plugin>,
}

/// What the plugins know about one image.
#[derive(Debug, Default)]
pub struct Found {
    /// Credentials to try, in the order of the plugins.
    pub credentials: Vec<Credential>,
    /// Plugins that were asked and could not answer.
    pub failures: Vec<PluginError>,
}

/// A plugin that could not answer.
#[derive(Debug, thiserror::Error)]
#[error("the credential provider `{plugin}` gave no credentials")]
pub struct PluginError {
    /// The plugin's name.
    pub plugin: String,
    /// What happened.
    #[source]
    pub problem: PluginProblem,
}

/// What happened to a plugin.
#[derive(Debug, thiserror::Error)]
pub enum PluginProblem {
    /// Running it.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Reading what it said.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

struct Plugin {
    config: PluginConfig,
    program: PathBuf,
    timeout: Duration,
    /// Held while the plugin runs: a second pull from the same registry then finds the answer instead of asking again.
    cache: Mutex<Cache>,
}

impl Providers {
    /// The plugins of a configuration, whose programs lie in one directory under their names.
    pub fn new(config: ProviderConfig, bin_dir: &Path) -> Self {
        Self::with_timeout(config, bin_dir, PLUGIN_TIMEOUT)
    }

    /// Like [`Providers::new`], with another limit on how long a plugin may take.
    pub fn with_timeout(config: ProviderConfig, bin_dir: &Path, timeout: Duration) -> Self {
        let plugin = |config: PluginConfig| {
            let program = bin_dir.join(&config.name);
            Plugin {
                config,
                program,
                timeout,
                cache: Mutex::default(),
            }
        };
        Self {
            plugins: config.plugins.into_iter().map(plugin).collect(),
        }
    }

    /// Asks every plugin that says it knows the image.
    pub async fn lookup(&self, image: &ImageRef) -> Found {
        let asked = self.plugins.iter().filter(|plugin| plugin.config.matches(image));
        let answers = futures::future::join_all(asked.map(|plugin| plugin.lookup(image))).await;
        let mut found = Found::default();
        for answer in answers {
            match answer {
                Ok(credentials) => {
                    for credential in credentials {
                        if !found.credentials.contains(&credential) {
                            found.credentials.push(credential);
                        }
                    }
                }
                Err(failure) => found.failures.push(failure),
            }
        }
        found
    }
}

impl Plugin {
    async fn lookup(&self, image: &ImageRef) -> Result<Vec<Credential>, PluginError> {
        let keyring = self.keyring(image).await.map_err(|problem| {
            tracing::warn!(plugin = self.config.name, image = %image, "credential provider failed");
            PluginError {
                plugin: self.config.name.clone(),
                problem,
            }
        })?;
        Ok(keyring.lookup(image))
    }

    async fn keyring(&self, image: &ImageRef) -> Result<Keyring, PluginProblem> {
        let mut cache = self.cache.lock().await;
        if let Some(keyring) = cache.get(image, Instant::now()) {
            return Ok(keyring);
        }
        let request = protocol::request(&self.config.api_version, image);
        let output = exec::run(&self.program, &self.config, request, self.timeout).await?;
        let answer = protocol::answer(&output, &self.config.api_version)?;
        if 0 < answer.broken {
            let entries = answer.broken;
            tracing::warn!(
                plugin = self.config.name,
                entries,
                "credential provider answered with unusable entries"
            );
        }
        let keep = answer.cache_for.unwrap_or(self.config.default_cache_duration);
        cache.insert(answer.cache_key, image, answer.keyring.clone(), keep, Instant::now());
        Ok(answer.keyring)
    }
}
