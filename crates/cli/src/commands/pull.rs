//! `larder pull`: this node's agent, once, without any API: the same decisions, credentials and reasons.

mod display;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_agent::once::{self, Request};
use larder_agent::{Credentials, FetchMode};
use larder_api::node_image::ImageTagStatus;
use larder_model::{Phase, PullWhen};
use larder_registry::docker_config::DockerConfig;
use larder_registry::fetch::{FetchSettings, Fetcher};
use larder_registry::hosts::Hosts;
use larder_registry::provider::{ProviderConfig, Providers};
use larder_registry::{Keyring, Platform, RegistryClient};
use larder_runtime::detect::{NotDetected, detect};
use larder_runtime::layout::LayoutRuntime;
use larder_runtime::{FetchOwner, Fetching, ImageRuntime, RuntimeError, connect_with};
use serde_json::{Value, json};

use self::display::Display;
use crate::args::{Pull, given};
use crate::failure::{Failure, chain};
use crate::output;
use crate::printable::Printable;

pub(crate) async fn run(arguments: Pull) -> Result<(), Failure> {
    let keyring = keyring(&arguments)?;
    let runtime = runtime(&arguments, &keyring).await?;
    let credentials = Credentials::new(None, providers(&arguments)?).with_keyring(keyring);
    let when = if arguments.always {
        PullWhen::Always
    } else {
        PullWhen::IfNotPresent
    };
    let request = Request {
        images: arguments.images.clone(),
        when,
        timeout_seconds: i32::try_from(arguments.timeout.as_secs()).unwrap_or(i32::MAX).max(1),
        retries: i32::from(arguments.retries),
        max_pulls: arguments.at_once.get(),
        hosts_dir: Some(arguments.hosts_dir.clone()),
    };
    let mut display = Display::new(arguments.output, &arguments.images);
    let ended = once::pull(&request, runtime, credentials, |statuses| display.show(statuses)).await;
    let ended = ended.map_err(|error| Failure::wrong(chain(&error)))?;
    let images: Vec<Value> = ended
        .iter()
        .map(|(image, status)| row(&image.to_string(), status))
        .collect();
    output::value(arguments.output, &json!({ "images": images }), Printable::default)?;
    let failed: Vec<String> = ended
        .iter()
        .filter(|(_, status)| status.phase() != Phase::Succeeded)
        .map(|(image, status)| {
            status
                .message
                .clone()
                .unwrap_or_else(|| format!("{image} was not pulled"))
        })
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::bad(failed.join("; ")))
    }
}

async fn runtime(arguments: &Pull, keyring: &Keyring) -> Result<Arc<dyn ImageRuntime>, Failure> {
    let registry = RegistryClient::new(larder_registry::Settings {
        hosts: Hosts::in_dir(&arguments.hosts_dir),
        mirror_logins: keyring.clone(),
        ..larder_registry::Settings::default()
    });
    let fetcher = Fetcher::new(FetchSettings {
        connections: usize::from(arguments.connections),
        max_bandwidth: NonZeroU64::new(arguments.max_bandwidth.bytes()),
        ..FetchSettings::default()
    });
    if let Some(folder) = &arguments.to {
        let opened = LayoutRuntime::open(folder, registry, Platform::of_this_machine());
        return match opened {
            Ok(folder) => Ok(Arc::new(folder.fetching(fetcher))),
            Err(error) => Err(Failure::wrong(format!(
                "the folder {} cannot be used: {}",
                folder.display(),
                error.text()
            ))),
        };
    }
    let root = Path::new("/");
    let endpoint = if let Some(endpoint) = &arguments.runtime_endpoint {
        endpoint.clone()
    } else {
        detect(root)
            .await
            .map_err(|not_detected| no_runtime(&not_detected))?
            .endpoint
    };
    let silent = |error: RuntimeError| {
        Failure::unreachable(format!(
            "the runtime at {} does not answer: {}",
            endpoint.path().display(),
            error.text()
        ))
    };
    let fetching = (arguments.fetch == FetchMode::Auto).then(|| Fetching::new(&registry, fetcher, FetchOwner::Command));
    connect_with(&endpoint, root, fetching).await.map_err(silent)
}

/// Of the usual places those are named at which something is, and does not answer.
fn no_runtime(not_detected: &NotDetected) -> Failure {
    let silent = not_detected.tried.iter().filter(|(_, why)| why != "is not there");
    let silent: Vec<String> = silent
        .map(|(endpoint, why)| format!("{} {why}", endpoint.path().display()))
        .collect();
    let silent = if silent.is_empty() {
        String::new()
    } else {
        format!(" ({})", silent.join("; "))
    };
    Failure::unreachable(format!(
        "no container runtime answers on this machine{silent}; name its socket with --runtime-endpoint, or keep the images in \
         a folder with --to DIR"
    ))
}

fn providers(arguments: &Pull) -> Result<Option<Providers>, Failure> {
    let (Some(file), Some(folder)) = (
        &arguments.image_credential_provider_config,
        &arguments.image_credential_provider_bin_dir,
    ) else {
        return Ok(None);
    };
    let unusable = |why: String| Failure::wrong(format!("{} cannot be used: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| unusable(error.to_string()))?;
    let config = ProviderConfig::parse(&text).map_err(|error| unusable(chain(&error)))?;
    for broken in &config.broken {
        output::error(&format!("a credential provider is passed over: {}", chain(broken)));
    }
    Ok(Some(Providers::new(config, folder)))
}

/// The user's logins, from where `docker login` and similar programs keep them.
fn keyring(arguments: &Pull) -> Result<Keyring, Failure> {
    let usual = || {
        let home = given(arguments.home.as_ref()).map(|home| home.join(".docker"));
        let folder: Option<PathBuf> = given(arguments.docker_config.as_ref()).or(home);
        folder
            .map(|folder| folder.join("config.json"))
            .filter(|file| file.exists())
    };
    let Some(file) = arguments.registry_config.clone().or_else(usual) else {
        return Ok(Keyring::default());
    };
    let unusable = |why: String| Failure::wrong(format!("{} cannot be used: {why}", file.display()));
    let text = std::fs::read(&file).map_err(|error| unusable(error.to_string()))?;
    let config = DockerConfig::from_config_json(&text).map_err(|error| unusable(chain(&error)))?;
    for broken in &config.broken {
        output::error(&format!(
            "a login of {} is passed over: {}",
            file.display(),
            chain(broken)
        ));
    }
    let mut keyring = Keyring::default();
    keyring.extend(config.entries);
    Ok(keyring)
}

fn row(image: &str, status: &ImageTagStatus) -> Value {
    json!({
        "image": image, "phase": status.phase, "digest": status.digest, "bytesTotal": status.bytes_total,
        "bytesDone": status.bytes_done, "attempts": status.attempts, "reason": status.reason, "message": status.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_runtime::RuntimeEndpoint;

    #[test]
    fn only_places_where_something_is_are_named() {
        let at = |path: &str| RuntimeEndpoint::at(path);
        let mut not_detected = NotDetected {
            tried: vec![(at("/run/crio.sock"), "is not there".into())],
        };
        let advice = "name its socket with --runtime-endpoint, or keep the images in a folder with --to DIR";
        assert_eq!(
            no_runtime(&not_detected).parts(),
            (
                3,
                Some(&*format!("no container runtime answers on this machine; {advice}"))
            )
        );
        not_detected
            .tried
            .push((at("/run/containerd.sock"), "Permission denied".into()));
        assert_eq!(
            no_runtime(&not_detected).parts(),
            (
                3,
                Some(&*format!(
                    "no container runtime answers on this machine (/run/containerd.sock Permission denied); {advice}"
                ))
            )
        );
    }
}
