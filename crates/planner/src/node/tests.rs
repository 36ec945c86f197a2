//! The scheduler as a whole: what it does in which order, and what must hold whatever happens.

mod attempts;
mod dry_runs;
mod losses;
mod memory;
mod orders;
mod pin_ops;
mod property;
mod start_order;
mod status;
mod times;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::node_image::{ImageSpec, ImageTagPullPolicy, ImageTagSpec, ImageTagStatus, NodeImageSpec};
use larder_model::{ByteSize, ImageRef, Phase, Reason};
use rstest::rstest;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn wall() -> Time {
    Time(jiff::Timestamp::UNIX_EPOCH)
}

fn tag(tag: &str) -> ImageTagSpec {
    ImageTagSpec {
        tag: tag.into(),
        pull_policy: ImageTagPullPolicy {
            timeout_seconds: 10,
            backoff_limit: 2,
            ..ImageTagPullPolicy::default()
        },
        ..ImageTagSpec::default()
    }
}

fn if_not_present(mut tag: ImageTagSpec) -> ImageTagSpec {
    tag.image_pull_policy = Some("IfNotPresent".into());
    tag
}

fn spec(tags: &[ImageTagSpec]) -> NodeImageSpec {
    let image = ImageSpec {
        tags: tags.to_vec(),
        ..ImageSpec::default()
    };
    NodeImageSpec {
        images: [("app".to_owned(), image)].into(),
        ..NodeImageSpec::default()
    }
}

fn key(tag: &str) -> Key {
    Key {
        name: "app".into(),
        tag: tag.into(),
    }
}

fn image_of(tag: &str) -> ImageRef {
    ImageRef::from_parts("app", tag).unwrap()
}

fn scheduler(max: usize, tags: &[ImageTagSpec]) -> NodeScheduler {
    let mut scheduler = NodeScheduler::new(max);
    scheduler.take_orders(entries(&spec(tags)), None, at(0));
    scheduler
}

fn pulled(id: &str) -> Ended {
    Ended::Pulled(Image {
        id: id.into(),
        digest: Some(format!("sha256:{id}")),
        ..Image::default()
    })
}

fn failed(reason: Reason) -> Ended {
    Ended::Failed {
        reason,
        words: "no".into(),
        retry_after: None,
    }
}

/// A scheduler on which every entry has been pulled.
fn done(tags: &[ImageTagSpec]) -> NodeScheduler {
    let mut scheduler = scheduler(9, tags);
    for (run, name) in pulls(&scheduler.decide(at(0), &wall())) {
        scheduler.ended(run, pulled(&name), at(1), &wall());
    }
    scheduler
}

fn inventory_of(taken: u64, tags: &[&str]) -> NodeInventory {
    NodeInventory {
        taken: at(taken),
        names: tags
            .iter()
            .map(|tag| (image_of(tag), (format!("id-{tag}"), ByteSize(100))))
            .collect(),
        ..NodeInventory::default()
    }
}

/// The pulls among the steps: number and tag.
fn pulls(steps: &[NodeStep]) -> Vec<(u64, String)> {
    let pulls = steps.iter().filter_map(|step| match step {
        NodeStep::Pull { run, key, .. } => Some((*run, key.tag.clone())),
        _ => None,
    });
    pulls.collect()
}

fn shown(scheduler: &NodeScheduler, tag: &str) -> ImageTagStatus {
    let status = scheduler.status().status;
    status.image_statuses["app"]
        .tags
        .iter()
        .find(|status| status.tag == tag)
        .unwrap()
        .clone()
}

fn phase(scheduler: &NodeScheduler, tag: &str) -> Phase {
    shown(scheduler, tag).phase()
}
