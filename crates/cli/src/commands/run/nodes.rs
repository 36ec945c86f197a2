//! How far each node is with what is being followed: a bar for each on a terminal, a line for each end in a pipe.

use std::collections::BTreeMap;
use std::convert::Infallible;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use larder_api::NodeImage;
use larder_api::node_image::{ImageTagSpec, ImageTagStatus};
use larder_model::{ImageRef, Phase};

use super::submit::Submitted;
use crate::bars::{self, Bar, Bars};
use crate::output;
use crate::printable::Tone;

/// Whose entries are followed.
pub(crate) enum Followed {
    /// Those of these jobs, or of the children of these lists.
    Jobs(Vec<Submitted>),
    /// This image's, written by hand.
    Image(ImageRef),
}

impl Followed {
    fn is_for(&self, name: &str, entry: &ImageTagSpec) -> bool {
        match self {
            Followed::Jobs(jobs) => jobs
                .iter()
                .any(|job| entry.owner_references.iter().any(|owner| belongs(owner, job))),
            Followed::Image(image) => image.name() == name && image.tag_text() == entry.tag,
        }
    }
}

fn belongs(owner: &ObjectReference, job: &Submitted) -> bool {
    let name = owner.name.as_deref().unwrap_or_default();
    let is_child = || name.strip_prefix(&job.name).is_some_and(|rest| rest.starts_with('-'));
    owner.namespace == job.namespace
        && if job.kind == "ImageListPullJob" {
            is_child()
        } else {
            name == job.name
        }
}

/// Where one node stands with all that is followed of it.
#[derive(Clone, Debug, PartialEq)]
struct NodeProgress {
    phase: Phase,
    done: i64,
    total: i64,
    /// Real tries; none where everything was there already.
    tries: i32,
    /// Between 0 and 1.
    part: f64,
    reason: Option<String>,
}

impl NodeProgress {
    fn of(node: &NodeImage, followed: &Followed) -> Option<Self> {
        let mut entries = 0_u32;
        let mut sum = Self {
            phase: Phase::Succeeded,
            done: 0,
            total: 0,
            tries: 0,
            part: 0.0,
            reason: None,
        };
        for (name, image) in &node.spec.images {
            for entry in image.tags.iter().filter(|entry| followed.is_for(name, entry)) {
                entries += 1;
                let result = node.result(name, &entry.tag);
                sum.add(result.filter(|result| entry.version <= result.version()));
            }
        }
        sum.part /= f64::from(entries);
        (0 < entries).then_some(sum)
    }

    fn add(&mut self, result: Option<&ImageTagStatus>) {
        let phase = result.map_or(Phase::Waiting, ImageTagStatus::phase);
        let (done, total) = result.map_or((0, 0), |result| {
            (result.bytes_done.unwrap_or(0), result.bytes_total.unwrap_or(0))
        });
        self.done += done;
        self.total += total;
        self.tries += result.and_then(|result| result.attempts).unwrap_or(0);
        self.part += if phase == Phase::Succeeded {
            1.0
        } else {
            bars::part(done, total)
        };
        if phase == Phase::Failed {
            self.reason = result.and_then(|result| result.reason.clone());
        }
        // The node is as far as the least of its images.
        let rank = |phase: Phase| match phase {
            Phase::Pulling => 0,
            Phase::Waiting => 1,
            Phase::Failed => 2,
            Phase::Succeeded => 3,
        };
        self.phase = [self.phase, phase]
            .into_iter()
            .min_by_key(|phase| rank(*phase))
            .unwrap_or(phase);
    }

    fn text(&self) -> String {
        match self.phase {
            Phase::Succeeded if self.tries == 0 => "there already".to_owned(),
            // A pull that is over at once is not measured.
            Phase::Succeeded if self.total == 0 => "pulled".to_owned(),
            Phase::Succeeded => bars::bytes(self.total, self.total),
            Phase::Failed => self.reason.clone().unwrap_or_else(|| "failed".to_owned()),
            Phase::Pulling if 0 < self.total => bars::bytes(self.done, self.total),
            Phase::Pulling => "pulls".to_owned(),
            Phase::Waiting => "waits".to_owned(),
        }
    }
}

/// The nodes, as they are shown.
pub(crate) struct NodeRows<'a> {
    api: Api<NodeImage>,
    followed: Followed,
    bars: Option<&'a Bars>,
    /// Bars above these.
    above: usize,
    /// The bar of everything, which moves with the nodes.
    whole: Option<Bar>,
    rows: BTreeMap<String, Row>,
}

struct Row {
    progress: NodeProgress,
    shown: Shown,
}

enum Shown {
    Bar(Bar),
    Line(String),
}

impl<'a> NodeRows<'a> {
    pub(crate) fn new(client: &Client, followed: Followed, bars: Option<&'a Bars>, whole: Option<Bar>) -> Self {
        let above = match &followed {
            Followed::Jobs(jobs) => jobs.len(),
            Followed::Image(_) => 0,
        };
        Self {
            api: Api::all(client.clone()),
            followed,
            bars,
            above,
            whole,
            rows: BTreeMap::new(),
        }
    }

    /// Shows every change, until it is dropped.
    pub(crate) async fn follow(&mut self) -> Infallible {
        loop {
            let mut objects = watcher(self.api.clone(), watcher::Config::default())
                .default_backoff()
                .touched_objects()
                .boxed();
            while let Some(object) = objects.next().await {
                // The watcher tries again by itself.
                if let Ok(object) = object {
                    self.show(&object);
                }
            }
        }
    }

    /// Shows how it ended: the watch may be behind.
    pub(crate) async fn last_look(&mut self) {
        if let Ok(list) = self.api.list(&ListParams::default()).await {
            list.items.iter().for_each(|object| self.show(object));
        }
        for row in self.rows.values() {
            if let Shown::Bar(bar) = &row.shown {
                bar.finish(tone(&row.progress));
            }
        }
    }

    fn show(&mut self, object: &NodeImage) {
        let Some(progress) = NodeProgress::of(object, &self.followed) else {
            return;
        };
        let name = object.metadata.name.clone().unwrap_or_default();
        let above = self.above + self.rows.range(..name.clone()).count();
        let row = self.rows.entry(name).or_insert_with_key(|name| Row {
            progress: progress.clone(),
            shown: match self.bars {
                Some(bars) => Shown::Bar(bars.insert(above, &format!("    {name}"))),
                None => Shown::Line(String::new()),
            },
        });
        match &mut row.shown {
            Shown::Bar(bar) => bar.set(progress.part, &progress.text()),
            Shown::Line(last) if progress.phase.is_final() => {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let line = format!("  {name}: {}, {}", progress.phase, progress.text());
                if *last != line {
                    output::line(&line);
                    *last = line;
                }
            }
            Shown::Line(_) => {}
        }
        row.progress = progress;
        if let Some(whole) = &self.whole {
            let parts: f64 = self.rows.values().map(|row| row.progress.part).sum();
            #[expect(clippy::cast_precision_loss, reason = "a bar has a few dozen characters")]
            whole.move_to(parts / self.rows.len() as f64);
        }
    }
}

fn tone(progress: &NodeProgress) -> Tone {
    if progress.phase == Phase::Failed {
        Tone::Bad
    } else {
        Tone::Good
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn node(results: &Value) -> NodeImage {
        let entry = |tag: &str| {
            json!({"tag": tag, "version": 1, "pullPolicy": {"ttlSecondsAfterFinished": 1},
                   "ownerReferences": [{"namespace": "default", "name": "web-x1"}]})
        };
        serde_json::from_value(json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "a"},
            "spec": {"images": {"nginx": {"tags": [entry("1"), entry("2")]}}},
            "status": {"imageStatuses": {"nginx": {"tags": results}}},
        }))
        .unwrap()
    }

    fn job(kind: &str, name: &str) -> Followed {
        Followed::Jobs(vec![Submitted {
            kind: kind.into(),
            namespace: Some("default".into()),
            name: name.into(),
        }])
    }

    #[rstest]
    #[case::nothing_said(json!([]), Phase::Waiting, "waits", 0.0)]
    #[case::an_old_result(json!([{"tag": "1", "version": 0, "phase": "Succeeded"}]), Phase::Waiting, "waits", 0.0)]
    #[case::one_pulls(json!([{"tag": "1", "version": 1, "phase": "Succeeded"}, {"tag": "2", "version": 1, "phase": "Pulling", "bytesDone": 1024, "bytesTotal": 2048}]),
        Phase::Pulling, "1.0 KiB of 2.0 KiB", 0.75)]
    #[case::one_failed(json!([{"tag": "1", "version": 1, "phase": "Succeeded"}, {"tag": "2", "version": 1, "phase": "Failed", "reason": "NotFound"}]),
        Phase::Failed, "NotFound", 0.5)]
    #[case::one_was_there(json!([{"tag": "1", "version": 1, "phase": "Succeeded", "attempts": 0}, {"tag": "2", "version": 1, "phase": "Succeeded", "attempts": 1, "bytesTotal": 2048}]),
        Phase::Succeeded, "2.0 KiB", 1.0)]
    #[case::all_were_there(json!([{"tag": "1", "version": 1, "phase": "Succeeded", "attempts": 0}, {"tag": "2", "version": 1, "phase": "Succeeded", "attempts": 0}]),
        Phase::Succeeded, "there already", 1.0)]
    #[case::pulled_at_once(json!([{"tag": "1", "version": 1, "phase": "Succeeded", "attempts": 0}, {"tag": "2", "version": 1, "phase": "Succeeded", "attempts": 1}]),
        Phase::Succeeded, "pulled", 1.0)]
    fn a_node_is_as_far_as_its_images(
        #[case] results: Value,
        #[case] phase: Phase,
        #[case] text: &str,
        #[case] part: f64,
    ) {
        let progress = NodeProgress::of(&node(&results), &job("ImageListPullJob", "web")).unwrap();
        assert_eq!((progress.phase, progress.text().as_str()), (phase, text));
        assert!((progress.part - part).abs() < 1e-9, "{progress:?}");
    }

    #[test]
    fn nodes_without_an_entry_are_not_shown() {
        assert_eq!(NodeProgress::of(&node(&json!([])), &job("ImagePullJob", "web")), None);
        assert_eq!(
            NodeProgress::of(&node(&json!([])), &job("ImageListPullJob", "we")),
            None
        );
        let image = ImageRef::parse("nginx:1").unwrap();
        assert!(NodeProgress::of(&node(&json!([])), &Followed::Image(image)).is_some());
    }
}
