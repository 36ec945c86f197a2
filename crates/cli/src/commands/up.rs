//! `larder up`: everything on this machine, in one process, until Ctrl-C.

use std::collections::BTreeMap;
use std::path::PathBuf;

use larder_embedded::{Embedded, Node, Runtime, Settings};
use larder_model::NodeName;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Up;
use crate::demo;
use crate::failure::{Failure, chain};
use crate::output;

pub(crate) async fn run(arguments: Up) -> Result<(), Failure> {
    if arguments.demo {
        return demonstrate(&arguments).await;
    }
    let settings = settings(&arguments)?;
    let (data, nodes) = (settings.data.display().to_string(), settings.nodes.len());
    // Listened for from the beginning, so that a Ctrl-C while it starts is not lost.
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::wrong(error.to_string()))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::wrong(error.to_string()))?;
    let embedded = Embedded::start(settings)
        .await
        .map_err(|error| Failure::wrong(chain(&error)))?;
    output::line(&format!(
        "Larder runs on {} with {nodes} node(s); data in {data}.",
        embedded.url()
    ));
    output::line("Stop it with Ctrl-C. In another terminal:");
    output::line("");
    output::line(&format!("  export KUBECONFIG={}", embedded.kubeconfig().display()));
    output::line("  kubectl get nodeimages");
    output::line("");
    output::line(&format!("KUBECONFIG={}", embedded.kubeconfig().display()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    output::line("Stopping.");
    embedded.shutdown().await;
    Ok(())
}

/// In a folder of its own, which goes with the end unless somebody named it.
async fn demonstrate(arguments: &Up) -> Result<(), Failure> {
    let folder = tempfile::Builder::new().prefix("larder-demo.").tempdir();
    let folder = folder.map_err(|error| Failure::wrong(format!("no temporary folder can be made: {error}")))?;
    let data = arguments.data.clone().unwrap_or_else(|| folder.path().to_owned());
    let settings = Settings {
        data: data.clone(),
        ..settings(arguments)?
    };
    demo::play(&data, settings, arguments.keep).await
}

fn settings(arguments: &Up) -> Result<Settings, Failure> {
    let count = arguments.nodes.get();
    let nodes = (1..=count).map(|number| {
        let name = NodeName::parse(&format!("node-{number}")).map_err(|error| Failure::wrong(error.to_string()))?;
        // One node is this machine; the others have folders of their own.
        let runtime = if number == 1 { Runtime::Machine } else { Runtime::Folder };
        Ok(Node {
            name,
            labels: BTreeMap::new(),
            runtime,
        })
    });
    Ok(Settings {
        data: data_folder(arguments)?,
        address: arguments.listen,
        hosts: None,
        nodes: nodes.collect::<Result<_, Failure>>()?,
    })
}

/// The user's data directory, as the desktop standards have it.
fn data_folder(arguments: &Up) -> Result<PathBuf, Failure> {
    let usual = || {
        let home = arguments.home.as_ref().map(|home| home.join(".local/share"));
        arguments.data_home.clone().or(home).map(|folder| folder.join("larder"))
    };
    let chosen = arguments.data.clone().or_else(usual);
    chosen.ok_or_else(|| Failure::wrong("there is no home directory to keep data in; give --data DIR"))
}
