//! One node in each of the two shapes.

use jiff::Timestamp;
use larder_api::image_pre_pull_job::{
    ActionFlowEntry, ImagePullResult, LegacyImageStatus, LegacyNodeStatus, LegacyTaskStatus, NodeTaskStatus,
};

use super::line::{Action, ImageLine, Line};
use crate::campaign::whole_seconds;
use crate::kubeedge::texts::{Event, NodePhase, State};

/// v1alpha2.
pub(super) fn node_task(line: &Line) -> NodeTaskStatus {
    let check = line.check.as_ref().map(|action| action_flow(Event::Check, action));
    let pull = line.pull.as_ref().map(|action| action_flow(Event::Pull, action));
    NodeTaskStatus {
        node_name: Some(line.name.to_string()),
        phase: Some(line.phase.as_str().to_owned()),
        cause: line.cause.map(str::to_owned),
        reason: line.reason.clone(),
        action_flow: check.into_iter().chain(pull).collect(),
        image_status: line.images.iter().map(image).collect(),
    }
}

fn action_flow(action: Event, ended: &Action) -> ActionFlowEntry {
    ActionFlowEntry {
        action: Some(action.as_str().to_owned()),
        status: Some(truth(ended.failure.is_none())),
        reason: ended.failure.clone(),
        time: ended.time.map(seconds),
    }
}

fn image(line: &ImageLine) -> ImagePullResult {
    ImagePullResult {
        image: Some(line.written.clone()),
        status: Some(truth(line.failure.is_none())),
        reason: line.failure.clone(),
        resolved_image: line.resolved.clone(),
    }
}

fn truth(value: bool) -> String {
    if value { "True" } else { "False" }.to_owned()
}

/// v1alpha1. Of a node whose turn has not come there is nothing to tell but that.
pub(super) fn legacy_node(line: &Line) -> LegacyNodeStatus {
    let begun = line.phase != NodePhase::Pending;
    LegacyNodeStatus {
        node_status: Some(LegacyTaskStatus {
            node_name: Some(line.name.to_string()),
            state: Some(line.state.as_str().to_owned()),
            event: begun.then(|| line.event.as_str().to_owned()),
            action: begun.then(|| line.state.action().to_owned()),
            reason: line.reason.clone(),
            time: line.time.map(seconds),
        }),
        image_status: line.images.iter().map(legacy_image).collect(),
    }
}

fn legacy_image(line: &ImageLine) -> LegacyImageStatus {
    let state = if line.failure.is_none() {
        State::Successful
    } else {
        State::Failed
    };
    LegacyImageStatus {
        image: Some(line.written.clone()),
        state: Some(state.as_str().to_owned()),
        reason: line.failure.clone(),
        resolved_image: line.resolved.clone(),
    }
}

/// RFC 3339 in UTC, in whole seconds.
fn seconds(moment: Timestamp) -> String {
    whole_seconds(moment).to_string()
}
