//! The example without a job: an entry that is written into one node's NodeImage, as the guides do it with kubectl.

use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use larder_api::NodeImage;
use larder_api::node_image::ImageTagStatus;
use larder_model::{ImageRef, Phase as EntryPhase};
use serde_json::json;

use crate::bars::Bars;
use crate::commands::run::nodes::{Followed, NodeRows};
use crate::failure::Failure;
use crate::job::{JobView, Phase};

/// Writes the entry and follows it to its end.
pub(super) async fn perform(client: &Client, node: &str, image: &str) -> Result<Vec<JobView>, Failure> {
    let image = ImageRef::parse(image).map_err(|error| Failure::wrong(error.to_string()))?;
    let nodes: Api<NodeImage> = Api::all(client.clone());
    let entry =
        json!({ "tag": image.tag_text(), "progressSeconds": 1, "pullPolicy": { "ttlSecondsAfterFinished": 300 } });
    let patch = json!({ "spec": { "images": { image.name(): { "tags": [entry] } } } });
    let written = nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    written.map_err(|error| Failure::from_api("writing the NodeImage", &error))?;
    let bars = Bars::on_terminal();
    let mut rows = NodeRows::new(client, Followed::Image(image.clone()), bars.as_ref(), None);
    let result = tokio::select! {
        result = end(nodes, node, &image) => result?,
        never = rows.follow() => match never {},
    };
    rows.last_look().await;
    Ok(vec![view(node, &result)])
}

async fn end(nodes: Api<NodeImage>, node: &str, image: &ImageRef) -> Result<ImageTagStatus, Failure> {
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut objects = watcher(nodes, config).default_backoff().touched_objects().boxed();
    while let Some(object) = objects.next().await {
        // The watcher tries again by itself.
        let Ok(object) = object else { continue };
        if let Some(result) = object.result(image.name(), &image.tag_text())
            && result.phase().is_final()
        {
            return Ok(result.clone());
        }
    }
    Err(Failure::unreachable("the API server ended the watch for good"))
}

/// As if it had been a job for one node.
fn view(node: &str, result: &ImageTagStatus) -> JobView {
    let done = result.phase() == EntryPhase::Succeeded;
    let reasons = result.reason.iter().filter(|_| !done).map(|reason| (reason.clone(), 1));
    JobView {
        kind: "NodeImage",
        name: node.to_owned(),
        phase: if done { Phase::Complete } else { Phase::Failed },
        desired: 1,
        succeeded: i32::from(done),
        failed: i32::from(!done),
        bytes_total: result.bytes_total,
        bytes_done: result.bytes_done,
        reasons: reasons.collect(),
        ..JobView::default()
    }
}
