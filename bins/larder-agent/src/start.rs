//! From what was typed to a running agent.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use larder_agent::{Clock, Credentials, Metrics, Parts, RuntimePlace, RuntimeSource, Settings};
use larder_model::NodeName;
use larder_registry::Keyring;
use larder_registry::docker_config::DockerConfig;
use larder_registry::provider::{ProviderConfig, Providers};
use larder_telemetry::{Health, MetricsAccess, Registry, logs, server};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::Args;

/// MetaServer's watches fall silent without a word, and it sends no bookmarks. The controller withdraws an order that
/// is not answered within 30 seconds: this is less, so that one written into a silent watch is found in time.
const METASERVER_SILENCE: Duration = Duration::from_secs(25);

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    logs::init(args.log_format, &args.log)?;
    // Fails only if one is installed already.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let Some(node) = args.node_name.clone().or_else(|| args.node_name_of_pod.clone()) else {
        bail!("the name of this node is not known; pass --node-name or set NODE_NAME");
    };
    let client = client(&args).await?;
    let health = Health::default();
    let metrics = Metrics::default();
    let mut registry = Registry::with_prefix("larder_agent");
    metrics.register(&mut registry);
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}; choose another address with --listen", args.listen))?;
    let stop = CancellationToken::new();
    let key = larder_agent::node_key(&args.state_dir)
        .with_context(|| format!("cannot keep state in {} (--state-dir)", args.state_dir.display()))?;
    let parts = Parts {
        client,
        runtime: RuntimeSource::Found(RuntimePlace {
            endpoint: args.runtime_endpoint.clone(),
            host_root: args.host_root.clone(),
        }),
        credentials: Credentials::new(Some(key), providers(&args)?).with_keyring(keyring(&args)?),
        clock: Clock::of_this_machine(),
        metrics,
        health: health.clone(),
    };
    tracing::info!(node = %node, version = env!("CARGO_PKG_VERSION"), "larder-agent begins");
    let endpoints = server::Endpoints {
        health,
        registry: Arc::new(registry),
        // The pod is on the node's network, where every machine can reach it.
        metrics_access: MetricsAccess::Protected {
            token_file: args.metrics_token_file.clone(),
        },
    };
    let serving = server::serve(listener, endpoints, stop.clone().cancelled_owned());
    let agent = larder_agent::run(settings(&args, node), parts, stop.clone());
    tokio::pin!(agent);
    let serving = tokio::spawn(serving);
    let outcome = tokio::select! {
        outcome = &mut agent => outcome,
        told = told_to_stop() => {
            told?;
            tracing::info!("told to stop; what runs is taken up again by the next start");
            stop.cancel();
            agent.await
        }
    };
    stop.cancel();
    serving.abort();
    outcome.map_err(anyhow::Error::new)
}

fn settings(args: &Args, node: NodeName) -> Settings {
    let defaults = Settings::new(node);
    Settings {
        state_dir: Some(args.state_dir.clone()),
        max_pulls: usize::from(args.max_concurrent_pulls),
        gc_threshold: args.image_gc_high_threshold,
        pin_share: args.pin_budget,
        fetch: args.fetch,
        connections_per_pull: usize::from(args.connections_per_pull),
        max_bandwidth: NonZeroU64::new(args.max_bandwidth.bytes()),
        accept_foreign_images: args.accept_foreign_images,
        hosts_dir: Some(below(&args.host_root, &args.hosts_dir)),
        silence: if args.server.is_some() {
            METASERVER_SILENCE
        } else {
            defaults.silence
        },
        ..defaults
    }
}

/// Waits for SIGTERM or SIGINT.
async fn told_to_stop() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

fn providers(args: &Args) -> anyhow::Result<Option<Providers>> {
    let (Some(file), Some(folder)) = (
        &args.image_credential_provider_config,
        &args.image_credential_provider_bin_dir,
    ) else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read {} (--image-credential-provider-config)", file.display()))?;
    let config = ProviderConfig::parse(&text).with_context(|| format!("{} cannot be used", file.display()))?;
    for broken in &config.broken {
        tracing::warn!(error = %broken, "a credential provider is passed over");
    }
    Ok(Some(Providers::new(config, folder)))
}

/// The node's own logins.
fn keyring(args: &Args) -> anyhow::Result<Keyring> {
    let mut keyring = Keyring::default();
    let Some(file) = &args.registry_config else {
        return Ok(keyring);
    };
    let text = std::fs::read(file).with_context(|| format!("cannot read {} (--registry-config)", file.display()))?;
    let config = DockerConfig::from_config_json(&text).with_context(|| format!("{} cannot be used", file.display()))?;
    for broken in &config.broken {
        tracing::warn!(error = %broken, "a login of --registry-config is passed over");
    }
    keyring.extend(config.entries);
    Ok(keyring)
}

async fn client(args: &Args) -> anyhow::Result<Client> {
    let mut config = match (&args.kubeconfig, &args.server) {
        (Some(file), _) => {
            let what = || format!("cannot use the kubeconfig {}", file.display());
            let kubeconfig = Kubeconfig::read_from(file).map_err(unquoted).with_context(what)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(what)?
        }
        (None, Some(server)) => {
            let mut config = Config::new(server.clone());
            config.auth_info.token_file = args.token_file.as_ref().map(|file| file.display().to_string());
            config.root_cert_file.clone_from(&args.ca_file);
            config
        }
        (None, None) => match Config::incluster() {
            Ok(config) => config,
            Err(_) => Config::from_kubeconfig(&KubeConfigOptions::default()).await.context(
                "no API server is known; pass --kubeconfig or --server, or run in a pod with a service account",
            )?,
        },
    };
    // Every request has its own time limit, and the task that sent it repeats it.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = None;
    Client::try_from(config).context("cannot make a client for the API server")
}

/// The parser quotes the lines around an error, which in a kubeconfig hold tokens and keys.
fn unquoted(error: KubeconfigError) -> anyhow::Error {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(place) => anyhow!("it is not valid YAML, or has another shape, at line {}", place.line()),
            None => anyhow!("it is not valid YAML, or has another shape"),
        },
        other => other.into(),
    }
}

fn below(root: &Path, path: &Path) -> std::path::PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
