//! `larder up --demo`: the whole system at work on this machine, with nothing but this program.
//!
//! A registry in this process stands in for the ones that the examples name, with images made on the spot; three nodes keep
//! theirs in folders. The example jobs run one after another, each to its end, and each end is compared with the one that
//! it should have.

mod registry;
mod stage;
mod summary;

use std::path::Path;
use std::time::{Duration, Instant};

use kube::Client;
use larder_embedded::{Embedded, Settings};

use crate::commands::run::follow;
use crate::failure::{Failure, chain};
use crate::job::Phase;
use crate::output;
use registry::DemoRegistry;
use stage::{Act, Ending};
use summary::Outcome;

/// How long one act may take. All of them together are done in half a minute; only a fault takes longer.
const ACT_LIMIT: Duration = Duration::from_secs(60);

/// Plays the demonstration. With `keep` it then waits for Ctrl-C.
pub(crate) async fn play(data: &Path, settings: Settings, keep: bool) -> Result<(), Failure> {
    let registry = DemoRegistry::start(stage::images())
        .await
        .map_err(|error| Failure::wrong(format!("the registry does not start: {error}")))?;
    let hosts = data.join("certs.d");
    registry
        .write_hosts(&hosts, &stage::REGISTRIES)
        .map_err(|error| Failure::wrong(format!("{}: {error}", hosts.display())))?;
    let settings = Settings {
        hosts: Some(hosts),
        nodes: stage::nodes()?,
        ..settings
    };
    let embedded = Embedded::start(settings)
        .await
        .map_err(|error| Failure::wrong(chain(&error)))?;
    output::line(&format!(
        "Larder runs on {}: API server, controller, 3 nodes and a registry with sample images.",
        embedded.url()
    ));
    let client = embedded.client();
    stage::prepare(&client).await?;
    let mut outcomes = Vec::new();
    for act in stage::acts(&registry) {
        outcomes.push(perform(&client, act).await?);
    }
    output::line("");
    output::print(&summary::table(&outcomes));
    let wrong = outcomes.iter().filter(|outcome| !outcome.as_expected()).count();
    if keep {
        output::line("");
        output::line("It stays up until Ctrl-C. In another terminal:");
        output::line(&format!("  export KUBECONFIG={}", embedded.kubeconfig().display()));
        output::line("  kubectl get imagepulljobs,nodeimages");
        // A Ctrl-C that cannot be listened for ends the process anyway.
        drop(tokio::signal::ctrl_c().await);
    }
    embedded.shutdown().await;
    if wrong == 0 {
        Ok(())
    } else {
        Err(Failure::wrong(format!(
            "{wrong} of {} examples did not end as they should",
            outcomes.len()
        )))
    }
}

async fn perform(client: &Client, act: Act) -> Result<Outcome, Failure> {
    output::line("");
    output::line(&act.says);
    let begun = now();
    let end = async {
        match &act.ending {
            Ending::Job { .. } => {
                let jobs = crate::commands::run::submit::all(client, &act.documents).await?;
                follow::until_finished(client, &jobs).await
            }
            Ending::Entry { node, image } => stage::edit_node_image(client, node, image, &act).await,
        }
    };
    let views = tokio::time::timeout(ACT_LIMIT, end)
        .await
        .map_err(|_| Failure::timeout(format!("«{}» did not end within {} s", act.says, ACT_LIMIT.as_secs())))??;
    let phase = if views.iter().all(|view| view.phase == Phase::Complete) {
        Phase::Complete
    } else {
        Phase::Failed
    };
    Ok(Outcome {
        act: act.title,
        phase,
        expected: act.ending.phase(),
        views,
        took: begun.elapsed(),
    })
}

#[expect(clippy::disallowed_methods, reason = "how long an example took, for people")]
fn now() -> Instant {
    Instant::now()
}
