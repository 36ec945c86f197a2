//! The floor: a client that writes the same two patches per NodeImage as a job does, with a watch open for each, and
//! decides nothing.

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Client, ResourceExt as _};
use larder_api::NodeImage;
use larder_api::contract::spec_patch;
use larder_api::node_image::NodeImageSpec;
use larder_testkit::wait_until;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::LIMIT;
use crate::hollow::name_of;
use crate::stage::{Effort, Stage};

/// Patches at once: as many as the controller sends.
const AT_ONCE: usize = 64;

/// What the floor costs.
#[derive(Clone, Debug)]
pub struct Bare {
    /// From the first patch to the answer of the last.
    pub took: Duration,
    /// What the API server had to do.
    pub effort: Effort,
}

/// Makes so many NodeImages, opens a watch on each, patches each twice, and takes everything away again.
pub async fn run(stage: &Stage, nodes: usize) -> Bare {
    let client = stage.client();
    let images = Api::<NodeImage>::all(client.clone());
    let create = |number: usize| {
        let images = images.clone();
        async move {
            let empty = NodeImage::new(&name_of(number), NodeImageSpec::default());
            images.create(&PostParams::default(), &empty).await.unwrap()
        }
    };
    let created: Vec<NodeImage> = futures::stream::iter((0..nodes).map(create))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let version = images.list_metadata(&ListParams::default().limit(1)).await.unwrap();
    let version = version.metadata.resource_version.unwrap();
    let mut watches = JoinSet::new();
    let opened = tokio::sync::Semaphore::new(0);
    let opened = std::sync::Arc::new(opened);
    for number in 0..nodes {
        let (client, version) = (stage.access().client().unwrap(), version.clone());
        let opened = std::sync::Arc::clone(&opened);
        watches.spawn(async move { watch(client, number, &version, &opened).await });
    }
    let all = u32::try_from(nodes).unwrap();
    let all_open = tokio::time::timeout(LIMIT, opened.acquire_many(all)).await;
    drop(all_open.unwrap().unwrap());

    let before = stage.effort().await;
    let began = Instant::now();
    let patch = |object: NodeImage| patch_twice(images.clone(), object);
    futures::stream::iter(created.into_iter().map(patch))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
    let took = began.elapsed();
    let effort = stage.effort().await.since(&before);
    assert!((effort.all_writes() - 2.0 * f64::from(all)).abs() < 0.5, "{effort:?}");

    watches.shutdown().await;
    let params = ListParams::default();
    images
        .delete_collection(&DeleteParams::default(), &params)
        .await
        .unwrap();
    let gone = async || images.list_metadata(&params).await.unwrap().items.is_empty();
    wait_until(LIMIT, "the NodeImages to go", gone).await.unwrap();
    Bare { took, effort }
}

/// Reads one NodeImage's events until it is dropped.
async fn watch(client: Client, number: usize, version: &str, opened: &tokio::sync::Semaphore) {
    let params = WatchParams::default().fields(&format!("metadata.name={}", name_of(number)));
    let images = Api::<NodeImage>::all(client);
    let events = images.watch(&params, version).await.unwrap();
    opened.add_permits(1);
    events.for_each(async |_| {}).await;
}

/// The order of a job, and the answer to it.
async fn patch_twice(images: Api<NodeImage>, object: NodeImage) {
    let name = object.name_any();
    let params = PatchParams::default();
    let policy = json!({"timeoutSeconds": 600, "backoffLimit": 3, "ttlSecondsAfterFinished": 2_300});
    let uid = "5ad2ffa5-21a9-4a1e-a4ae-4b8b0a4cbbe6";
    let wanted = json!({"images": {"registry.example/image": {"tags": [{
        "tag": "1", "version": 1, "createdAt": "2026-01-01T00:00:00Z", "pullPolicy": policy, "imagePullPolicy": "IfNotPresent",
        "claims": [{"uid": uid, "version": 1}], "progressSeconds": 2,
        "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "name": "job", "namespace": "bench", "uid": uid}],
    }]}}});
    let wanted: NodeImageSpec = serde_json::from_value(wanted).unwrap();
    let order = spec_patch(&object, &wanted).unwrap();
    let order: Patch<()> = Patch::Json(serde_json::from_value(order).unwrap());
    images.patch(&name, &params, &order).await.unwrap();
    let digest = "sha256:d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26";
    let answer = json!({"status": {
        "desired": 1, "succeeded": 1, "failed": 0, "pulling": 0, "waiting": 0,
        "agent": {"version": "0.1.0", "runtime": "fake 1.0.0", "lastSeen": "2026-01-01T00:00:01Z"},
        "imageStatuses": {"registry.example/image": {"tags": [{
            "tag": "1", "version": 1, "phase": "Succeeded", "progress": 100, "attempts": 1, "digest": digest, "imageID": digest,
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z",
            "bytesTotal": 1_048_576, "bytesDone": 1_048_576,
            "lastSucceeded": {"version": 1, "digest": digest, "completionTime": "2026-01-01T00:00:01Z"},
        }]}},
    }});
    images
        .patch_status(&name, &params, &Patch::Merge(answer))
        .await
        .unwrap();
}
