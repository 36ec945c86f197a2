//! `larder up`: everything on this machine, in one process, until Ctrl-C.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_embedded::{DataFolder, DiskError, Embedded, Node, Runtime, Settings, StartError};
use larder_model::NodeName;
use larder_telemetry::logs;
use tokio_util::sync::CancellationToken;

use crate::args::{Up, given};
use crate::failure::{Failure, chain};
use crate::{demo, open_files, output, stop};

/// How long the parts may take to get ready. They take less than a second; a slow disk or a busy machine takes longer.
const READY: Duration = Duration::from_mins(1);

pub(crate) async fn run(arguments: Up) -> Result<(), Failure> {
    let stop = stop::token()?;
    if arguments.demo {
        return demo::run(&arguments, &stop).await;
    }
    open_files::make_room_for(arguments.nodes.get())?;
    let nodes = nodes(arguments.nodes.get())?;
    let count = nodes.len();
    let folder = data_folder(&arguments)?;
    let Some(embedded) = start(&folder, &arguments, nodes, None, &stop).await? else {
        return Ok(());
    };
    let kubeconfig = embedded.kubeconfig().display().to_string();
    if let Some(port) = embedded.port_taken() {
        output::line(&format!(
            "Port {port}, the last one, is taken by another program; copies of the kubeconfig do not work any more."
        ));
    }
    let nodes = if count == 1 { "node" } else { "nodes" };
    output::line(&format!("Larder runs on {} with {count} {nodes}.", embedded.url()));
    output::line(&format!("Data and larder.log are in {}.", folder.display()));
    output::line("Stop it with Ctrl-C. In another terminal:");
    output::line("");
    output::line(&format!("  export KUBECONFIG={kubeconfig}"));
    output::line("  kubectl get nodeimages");
    output::line("");
    output::line(&format!("KUBECONFIG={kubeconfig}"));
    stop.cancelled().await;
    output::line("Stopping; a second Ctrl-C ends at once.");
    embedded.shutdown().await;
    Ok(())
}

/// Starts everything and waits until it is ready; None if it was told to stop meanwhile.
pub(crate) async fn start(
    folder: &Path,
    arguments: &Up,
    nodes: Vec<Node>,
    hosts: Option<PathBuf>,
    stop: &CancellationToken,
) -> Result<Option<Embedded>, Failure> {
    let data = DataFolder::open(folder).map_err(|error| Failure::wrong(chain(&error)))?;
    let log = data.open_log().map_err(|error| Failure::wrong(chain(&error)))?;
    let log_path = data.log_path();
    logs::init_file(log, &arguments.log).map_err(|error| Failure::wrong(error.to_string()))?;
    let settings = Settings {
        address: arguments
            .listen
            .or_else(|| arguments.port.map(|port| (Ipv4Addr::LOCALHOST, port).into())),
        hosts,
        nodes,
    };
    let embedded = tokio::select! {
        started = Embedded::start(data, settings) => started.map_err(|error| refused(&error))?,
        () = stop.cancelled() => return Ok(None),
    };
    let ready = tokio::select! {
        ready = embedded.ready(READY) => ready.map(|()| true),
        () = stop.cancelled() => Ok(false),
    };
    match ready {
        Ok(true) => Ok(Some(embedded)),
        Ok(false) => {
            embedded.shutdown().await;
            Ok(None)
        }
        Err(error) => {
            embedded.shutdown().await;
            Err(Failure::bad(format!("{error}; {} may say why", log_path.display())))
        }
    }
}

/// One sentence, with what to do.
fn refused(error: &StartError) -> Failure {
    let advice = match error {
        StartError::Listen(_) => "; choose another address with --listen",
        StartError::Objects { source, .. } if !matches!(source, DiskError::Format(_)) => {
            "; move the file away to begin anew (jobs are forgotten, images stay), or put back a copy of it"
        }
        StartError::Objects { .. }
        | StartError::Data(_)
        | StartError::Plane(_)
        | StartError::Retire(_)
        | StartError::Node { .. } => "",
    };
    Failure::wrong(format!("{}{advice}", chain(error)))
}

/// The first is this machine; the others have folders of their own.
fn nodes(count: usize) -> Result<Vec<Node>, Failure> {
    let node = |number| {
        let name = NodeName::parse(&format!("node-{number}")).map_err(|error| Failure::wrong(error.to_string()))?;
        Ok(Node {
            name,
            labels: BTreeMap::new(),
            runtime: if number == 1 { Runtime::Machine } else { Runtime::Folder },
        })
    };
    (1..=count).map(node).collect()
}

/// The user's data directory, as the desktop standards have it.
fn data_folder(arguments: &Up) -> Result<PathBuf, Failure> {
    let usual = || {
        let home = given(arguments.home.as_ref()).map(|home| home.join(".local/share"));
        let data_home = given(arguments.data_home.as_ref());
        data_home.or(home).map(|folder| folder.join("larder"))
    };
    let chosen = given(arguments.data.as_ref()).or_else(usual);
    let chosen = chosen.ok_or_else(|| Failure::wrong("there is no home directory to keep data in; give --data DIR"))?;
    // Others are told where it is, from wherever they are.
    std::path::absolute(&chosen).map_err(|error| Failure::wrong(format!("{}: {error}", chosen.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;
    use rstest::rstest;

    fn folder_for(home: &str, data_home: &str, data: &str) -> Result<PathBuf, Failure> {
        let typed = ["larder", "up", "--home", home, "--data-home", data_home, "--data", data];
        let Command::Up(arguments) = Arguments::try_parse_from(typed).unwrap().command else {
            panic!("up was typed");
        };
        data_folder(&arguments)
    }

    #[rstest]
    #[case::set("/home/me", "/data", "", "/data/larder")]
    #[case::empty_is_unset("/home/me", "", "", "/home/me/.local/share/larder")]
    #[case::named("", "", "/here", "/here")]
    fn data_folders(#[case] home: &str, #[case] data_home: &str, #[case] data: &str, #[case] want: &str) {
        assert_eq!(folder_for(home, data_home, data).unwrap(), PathBuf::from(want));
    }

    #[test]
    fn without_a_home_a_folder_has_to_be_named() {
        assert_eq!(
            folder_for("", "", "").unwrap_err().parts(),
            (2, Some("there is no home directory to keep data in; give --data DIR"))
        );
    }
}
