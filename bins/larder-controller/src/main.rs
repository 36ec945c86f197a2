//! The controller as a program: reads flags, connects, serves its health and runs until it is told to end. Given an
//! [`errand`], it does that instead.
//!
//! Exit codes: 0 told to end, 1 ended by itself or the errand failed, 2 wrong flags or configuration, 3 the errand was refused
//! and need not be tried again.

mod check;
mod errand;
mod install_crds;
mod uninstall;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use larder_controller::args::{Args, ArgsError};
use larder_controller::connect::{ConnectError, connect};
use larder_controller::error_chain::chain;
use larder_controller::run::{Controller, RunError};
use larder_telemetry::{Health, MetricsAccess, Registry, instance_name, logs, server};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::errand::{Errand, ErrandError};

#[derive(Debug, Parser)]
#[command(name = "larder-controller", version)]
struct Program {
    #[command(subcommand)]
    errand: Option<Errand>,

    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    match start(&Program::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logs::report("larder-controller", &chain(&failure));
            ExitCode::from(failure.exit_code())
        }
    }
}

#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Log(#[from] logs::LogError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot listen on {address}; choose another one with --listen")]
    Listen {
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("the operating system refuses {what}")]
    System { what: &'static str, source: std::io::Error },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Errand(#[from] ErrandError),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Args(_) | Self::Log(_) | Self::Connect(_) | Self::Listen { .. } => 2,
            Self::Errand(ErrandError::Refused(_)) => 3,
            Self::System { .. } | Self::Run(_) | Self::Errand(_) => 1,
        }
    }
}

fn start(program: &Program) -> Result<(), Failure> {
    logs::init(program.args.log_format, &program.args.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| Failure::System {
            what: "threads",
            source,
        })?;
    // Fails only if one is installed already.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    runtime.block_on(async {
        match &program.errand {
            Some(errand) => {
                let client = connect(program.args.kubeconfig.as_deref()).await?;
                Ok(errand
                    .run(client, &program.args.namespace, instance_name("larder-controller"))
                    .await?)
            }
            None => run(&program.args).await,
        }
    })
}

async fn run(args: &Args) -> Result<(), Failure> {
    let (settings, unknown) = args.settings(instance_name("larder-controller"))?;
    for gate in unknown {
        warn!(gate, "a feature gate that Larder does not know is ignored");
    }
    let client = connect(args.kubeconfig.as_deref()).await?;
    let address = args.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| Failure::Listen { address, source })?;

    let stop = CancellationToken::new();
    cancel_on_signal(&stop).map_err(|source| Failure::System {
        what: "signal handlers",
        source,
    })?;
    let health = Health::default();
    let mut registry = Registry::with_prefix("larder_controller");
    info!(version = env!("CARGO_PKG_VERSION"), identity = settings.identity, %address, "starting");
    let controller = Controller::new(client, settings, &health, &mut registry);
    let served = CancellationToken::new();
    let end_serving = served.clone().cancelled_owned();
    let endpoints = server::Endpoints {
        health,
        registry: Arc::new(registry),
        metrics_access: MetricsAccess::Open,
    };
    let serving = tokio::spawn(server::serve(listener, endpoints, end_serving));
    let outcome = controller.run(stop).await;
    served.cancel();
    if let Ok(Err(error)) = serving.await {
        warn!(error = chain(&error), "health and metrics were not served to the end");
    }
    Ok(outcome?)
}

/// SIGTERM from the kubelet, SIGINT from a terminal.
fn cancel_on_signal(stop: &CancellationToken) -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}
