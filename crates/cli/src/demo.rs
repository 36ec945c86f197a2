//! `larder up --demo`: the whole system at work on this machine, with nothing but this program.
//!
//! A registry in this process stands in for the ones that the examples name, with images made on the spot; three nodes keep
//! theirs in folders. The example jobs run one after another, each to its end, and each end is compared with the one that
//! it should have.

mod by_hand;
mod image_store;
mod registry;
mod scenario;
mod summary;

use std::path::Path;
use std::time::Duration;

use kube::Client;
use larder_embedded::{DataFolder, Embedded};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::args::{Up, given};
use crate::commands::run::follow::{self, Detail};
use crate::commands::run::submit;
use crate::commands::up;
use crate::failure::{Failure, chain};
use crate::output;
use crate::printable::{Printable, Tone};
use image_store::ImageStores;
use registry::DemoRegistry;
use scenario::{Ending, Example, ExpectedNames};
use summary::Outcome;

/// How long one example may take. All of them together are done in half a minute; only a fault takes longer.
const EXAMPLE_LIMIT: Duration = Duration::from_mins(1);

/// Plays the demonstration in a folder of its own, which is removed at the end unless it was named or the
/// demonstration failed.
pub(crate) async fn run(arguments: &Up, stop: &CancellationToken) -> Result<(), Failure> {
    if let Some(folder) = &given(arguments.data.as_ref()) {
        if folder.join("objects.redb").exists() {
            return Err(Failure::wrong(format!(
                "{} holds the data of an earlier start; give the demonstration a new folder with --data, or none",
                folder.display()
            )));
        }
        let folder = std::path::absolute(folder);
        let folder = folder.map_err(|error| Failure::wrong(format!("the data folder cannot be used: {error}")))?;
        return play(&folder, arguments, stop).await;
    }
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let folder = tempfile::Builder::new()
        .prefix("larder-demo.")
        .permissions(private)
        .tempdir();
    let folder = folder.map_err(|error| Failure::wrong(format!("no temporary folder can be made: {error}")))?;
    let played = play(folder.path(), arguments, stop).await;
    if played.is_err() && !stop.is_cancelled() {
        output::error(&format!("what there is to see is left in {}", folder.keep().display()));
    }
    played
}

async fn play(folder: &Path, arguments: &Up, stop: &CancellationToken) -> Result<(), Failure> {
    DataFolder::prepare(folder).map_err(|error| Failure::wrong(chain(&error)))?;
    let hosts = folder.join("certs.d");
    let registry = serve(scenario::images(), &hosts, &scenario::REGISTRIES).await?;
    let _regional = serve(scenario::regional_images(), &hosts, &scenario::REGIONAL).await?;
    let started = up::start(folder, arguments, scenario::nodes()?, Some(hosts), stop).await?;
    let Some(embedded) = started else {
        return Err(Failure::interrupted());
    };
    let stores = ImageStores::of(folder);
    let shown = tokio::select! {
        shown = show(&embedded, &registry, &stores) => shown,
        () = stop.cancelled() => Err(Failure::interrupted()),
    };
    if arguments.keep && !stop.is_cancelled() {
        invite(&embedded);
        stop.cancelled().await;
    }
    embedded.shutdown().await;
    shown
}

/// A registry, and the files by which nodes find it under these names.
async fn serve(images: Vec<registry::Offer>, hosts: &Path, names: &[&str]) -> Result<DemoRegistry, Failure> {
    let registry = DemoRegistry::start(images)
        .await
        .map_err(|error| Failure::wrong(format!("a registry does not start: {error}")))?;
    registry
        .write_hosts(hosts, names)
        .map_err(|error| Failure::wrong(format!("{}: {error}", hosts.display())))?;
    Ok(registry)
}

async fn show(embedded: &Embedded, registry: &DemoRegistry, stores: &ImageStores) -> Result<(), Failure> {
    say(
        "",
        Tone::Strong,
        "Larder on this machine: API server, controller, three nodes, two registries",
    );
    let client = embedded.client();
    scenario::prepare(&client).await?;
    let begun = Instant::now();
    let examples = scenario::examples(registry);
    let count = examples.len();
    let mut outcomes = Vec::new();
    for (number, mut example) in examples.into_iter().enumerate() {
        output::line("");
        say(&format!("{}/{count} ", number + 1), Tone::Strong, example.says);
        say("    ", Tone::Faint, example.how);
        let names = std::mem::take(&mut example.names);
        let mut outcome = run_example(&client, example).await?;
        outcome.names_present = look(stores, &names).await;
        outcomes.push(outcome);
    }
    output::line("");
    output::print(&summary::table(&outcomes));
    say("", Tone::Faint, summary::SIZES);
    output::line("");
    summary::verdict(&outcomes, begun.elapsed()).map(|sentence| say("", Tone::Good, &sentence))
}

/// Prints a line that ends in a colour.
fn say(before: &str, tone: Tone, text: &str) {
    output::print(&Printable::default().plain(before).painted(tone, text).end_line());
}

/// Says under which names the nodes have an image, and whether it is all that they should.
async fn look(stores: &ImageStores, names: &[ExpectedNames]) -> bool {
    let mut complete = true;
    for ExpectedNames { node, names } in names {
        let found = stores.names(node, names).await;
        complete &= found.len() == names.len();
        let mut before = format!("    {node} has ");
        if found.is_empty() {
            output::line(&format!("{before}none of {}", names.join(", ")));
        }
        for name in found {
            output::line(&format!("{before}{name}"));
            before = format!("    {} and ", " ".repeat(node.len()));
        }
    }
    complete
}

async fn run_example(client: &Client, example: Example) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let end = async {
        match &example.ending {
            Ending::Job(_) => {
                let jobs = submit::all(client, &example.documents).await?;
                follow::until_finished(client, &jobs, Detail::Nodes).await
            }
            Ending::Entry { node, image } => by_hand::perform(client, node, image).await,
        }
    };
    let views = tokio::time::timeout(EXAMPLE_LIMIT, end).await.map_err(|_| {
        Failure::bad(format!(
            "\"{}\" did not end within {} s",
            example.title,
            EXAMPLE_LIMIT.as_secs()
        ))
    })??;
    Ok(Outcome {
        title: example.title,
        expected: example.ending.expected(),
        views,
        took: begun.elapsed(),
        names_present: true,
    })
}

fn invite(embedded: &Embedded) {
    output::line("");
    output::line("It stays up until Ctrl-C. In another terminal:");
    output::line("");
    output::line(&format!("  export KUBECONFIG={}", embedded.kubeconfig().display()));
    output::line("  kubectl get imagepulljobs,imageprepulljobs,nodeimages");
    output::line("  kubectl describe nodeimage node-1");
    output::line("  larder why typo");
    output::line("");
    // For scripts.
    output::line(&format!("KUBECONFIG={}", embedded.kubeconfig().display()));
}
