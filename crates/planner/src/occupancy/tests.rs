//! Nobody can keep another namespace from its part of a NodeImage.

use std::sync::Arc;

use larder_api::contract::NODE_IMAGE_BYTES_MAX;
use larder_api::node_image::{ImageStatus, ImageTagStatus, NodeImageStatus};
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::node_spec::{DesiredSpec, NodeSpecInput, Order, OwnerState, desired_spec};
use crate::retention::HandWrittenEnds;
use crate::task::{TaskImage, Tasks};
use crate::view::samples::{at, campaign};

const KIB: usize = 1_024;

/// Ordinary jobs of one image that a second namespace can always have on a node, whatever the first one does: 3/16 of a
/// NodeImage, less than half of what they really take.
const GUARANTEED_JOBS: usize = 18;

/// A job for these images, with so many bytes of annotations.
fn job(namespace: &str, uid: &str, images: &[String], annotations: usize) -> Campaign {
    let mut campaign = campaign(1);
    campaign.owner.namespace = Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty());
    campaign.owner.uid = Some(uid.to_owned());
    let image = |text: &String| TaskImage::new(ImageRef::parse(text).unwrap(), Vec::new());
    let task = NodeTask::new(images.iter().map(image).collect(), Vec::new());
    campaign.tasks = Tasks::shared(task);
    campaign.rules.sandbox = (0 < annotations).then(|| sandbox(annotations));
    campaign
}

fn sandbox(bytes: usize) -> SandboxConfig {
    SandboxConfig {
        annotations: [("a".to_owned(), "x".repeat(bytes))].into(),
        ..SandboxConfig::default()
    }
}

/// A node, its NodeImage, and the jobs that are there.
#[derive(Default)]
struct Node {
    object: NodeImage,
    jobs: Vec<Arc<Campaign>>,
}

impl Node {
    fn bytes(&self) -> usize {
        json_bytes(&self.object)
    }

    /// Writes orders for these jobs in one write, as the controller does, and answers them. Tells which were refused.
    fn write(&mut self, orders: &[(Campaign, Order)]) -> Vec<String> {
        self.jobs.extend(orders.iter().map(|(job, _)| Arc::new(job.clone())));
        let owners = self.jobs.iter().map(|job| {
            let running = OwnerState::Running {
                campaign: job,
                started: at(0),
                selected: true,
            };
            (job.uid(), running)
        });
        let DesiredSpec { spec, refused, .. } = desired_spec(&NodeSpecInput {
            node: "node-1",
            object: &self.object,
            bytes: self.bytes(),
            occupancy: None,
            owners: owners.collect(),
            orders: orders.iter().map(|(job, order)| (job.uid(), order)).collect(),
            withheld: BTreeSet::new(),
            closed: BTreeSet::new(),
            progress_seconds: Some(2),
            credentials: None,
            hand_written_ends: &HandWrittenEnds::default(),
            now: at(0),
        });
        self.object.spec = spec;
        self.answer();
        refused.into_iter().map(|(uid, _)| uid).collect()
    }

    fn claim(&mut self, jobs: &[Campaign]) -> Vec<String> {
        let order = |job: &Campaign| {
            (
                job.clone(),
                Order::Claim {
                    before: BTreeMap::new(),
                },
            )
        };
        self.write(&jobs.iter().map(order).collect::<Vec<_>>())
    }

    /// The agent says something about every entry.
    fn answer(&mut self) {
        let digest = format!("sha256:{}", "a".repeat(64));
        let status = |entry: &ImageTagSpec| ImageTagStatus {
            tag: entry.tag.clone(),
            phase: "Failed".to_owned(),
            version: Some(entry.version),
            digest: Some(digest.clone()),
            message: Some("m".repeat(1_000)),
            ..ImageTagStatus::default()
        };
        let images = self.object.spec.images.iter().map(|(name, image)| {
            let tags = image.tags.iter().map(status).collect();
            (name.clone(), ImageStatus { tags })
        });
        self.object.status = Some(NodeImageStatus {
            image_statuses: images.collect(),
            ..NodeImageStatus::default()
        });
    }

    /// How many jobs of one image each a namespace can still have here, of so many.
    fn takes(&mut self, namespace: &str, jobs: usize) -> usize {
        let job = |number: usize| {
            let image = format!("{namespace}-app-{number}:1");
            job(namespace, &format!("{namespace}-{number}"), &[image], 0)
        };
        jobs - self.claim(&(0..jobs).map(job).collect::<Vec<_>>()).len()
    }
}

fn big_jobs(count: usize, bytes: usize) -> Vec<Campaign> {
    let job = |number: usize| job("greedy", &format!("big-{number}"), &[format!("big-{number}:1")], bytes);
    (0..count).map(job).collect()
}

fn small_jobs(count: usize, image: impl Fn(usize) -> String) -> Vec<Campaign> {
    let job = |number: usize| job("greedy", &format!("small-{number}"), &[image(number)], 0);
    (0..count).map(job).collect()
}

#[rstest]
#[case::annotations_of_five_jobs(big_jobs(5, 60 * KIB), 2)]
#[case::annotations_of_one_job(big_jobs(1, 200 * KIB), 1)]
#[case::a_large_config_fits_where_there_is_room(big_jobs(1, 100 * KIB), 0)]
#[case::many_images(small_jobs(255, |number| format!("i{number}:1")), 179)]
#[case::many_owners_of_one_entry(small_jobs(999, |_| "one:1".to_owned()), 923)]
#[case::one_job_with_many_images(vec![job("", "many", &(0..80).map(|number| format!("i{number}:1")).collect::<Vec<_>>(), 0)], 1)]
fn one_namespace_leaves_room_for_another(#[case] greedy: Vec<Campaign>, #[case] refused: usize) {
    let mut node = Node::default();
    assert_eq!(node.claim(&greedy).len(), refused, "of {} jobs", greedy.len());
    assert_eq!(
        node.takes("other", GUARANTEED_JOBS),
        GUARANTEED_JOBS,
        "{} bytes",
        node.bytes()
    );
    assert!(node.bytes() <= NODE_IMAGE_BYTES_MAX);
}

#[test]
fn jobs_that_come_one_after_another_reach_the_same_limit() {
    let mut node = Node::default();
    let refused: Vec<String> = big_jobs(5, 60 * KIB)
        .into_iter()
        .flat_map(|job| node.claim(&[job]))
        .collect();
    assert_eq!(refused, ["big-3", "big-4"]);
    assert_eq!(node.takes("other", GUARANTEED_JOBS), GUARANTEED_JOBS);
}

#[test]
fn a_third_namespace_finds_room_too() {
    let mut node = Node::default();
    node.claim(&big_jobs(9, 30 * KIB));
    assert_eq!(node.takes("second", GUARANTEED_JOBS), GUARANTEED_JOBS);
    assert_eq!(node.takes("third", 2), 2);
}

#[test]
fn an_edit_does_not_make_a_config_grow_beyond_the_limit() {
    let mut node = Node::default();
    let mut jobs = big_jobs(20, 0);
    assert_eq!(node.claim(&jobs), [""; 0]);
    for job in &mut jobs {
        job.rules.sandbox = Some(sandbox(60 * KIB));
    }
    node.jobs = jobs.into_iter().map(Arc::new).collect();
    node.write(&[]);
    let large = node.object.spec.images.values();
    assert_eq!(large.filter(|image| image.sandbox_config.is_some()).count(), 2);
    assert_eq!(node.takes("other", GUARANTEED_JOBS), GUARANTEED_JOBS);
}

#[test]
fn what_is_there_is_refreshed_however_full_the_node_is() {
    let mut node = Node::default();
    let jobs = big_jobs(5, 60 * KIB);
    node.claim(&jobs);
    assert_eq!(node.claim(&jobs[..1]), [""; 0]);
    assert_eq!(node.claim(&jobs[4..]), ["big-4"]);
}

#[rstest]
#[case::own_namespace(
    "greedy",
    "183.6 KiB of 256.0 KiB and 3 of 256 image names of the NodeImage are occupied, most by the jobs of namespace greedy: \
     183.3 KiB and 3 image names; this job needs 62.5 KiB more, and the rest is kept for other namespaces"
)]
#[case::another_namespace(
    "other",
    "183.6 KiB of 256.0 KiB and 3 of 256 image names of the NodeImage are occupied, most by the jobs of namespace greedy: \
     183.3 KiB and 3 image names; this job needs 62.5 KiB more"
)]
fn who_occupies_a_node_is_said(#[case] namespace: &str, #[case] want: &str) {
    let mut node = Node::default();
    node.claim(&big_jobs(3, 60 * KIB - 400));
    let late = job(namespace, "late", &["late:1".to_owned()], 60 * KIB - 9);
    let task = late.tasks.of("node-1").unwrap();
    let no_room = claim_fits(&node.object, node.bytes(), None, &late, task).unwrap_err();
    assert_eq!(no_room.to_string(), want);
}

#[test]
fn entries_that_no_job_owns_are_named_as_such() {
    let mut node = Node::default();
    let entry = ImageTagSpec {
        tag: "1".to_owned(),
        ..ImageTagSpec::default()
    };
    for number in 0..256 {
        let tags = vec![entry.clone()];
        let image = ImageSpec {
            tags,
            ..ImageSpec::default()
        };
        node.object.spec.images.insert(format!("i{number}"), image);
    }
    let late = job("team", "late", &["late:1".to_owned()], 0);
    let task = late.tasks.of("node-1").unwrap();
    let no_room = claim_fits(&node.object, node.bytes(), None, &late, task).unwrap_err();
    assert!(no_room.to_string().contains("by entries that no job owns"), "{no_room}");
    // A namespace that has nothing yet may take the last name.
    node.object.spec.images.remove("i17");
    assert_eq!(claim_fits(&node.object, node.bytes(), None, &late, task), Ok(()));
}

/// What a greedy tenant does: jobs with these images and annotations, and edits.
#[derive(Clone, Debug)]
enum Act {
    Claim { images: Vec<usize>, annotations: usize },
    Withdraw(usize),
    Edit { job: usize, annotations: usize },
}

fn act() -> impl Strategy<Value = Act> {
    let annotations = prop_oneof![Just(0), 0..4 * KIB, 0..200 * KIB];
    prop_oneof![
        6 => (prop::collection::vec(0_usize..300, 1..12), annotations.clone())
            .prop_map(|(images, annotations)| Act::Claim { images, annotations }),
        1 => (0_usize..40).prop_map(Act::Withdraw),
        2 => (0_usize..40, annotations).prop_map(|(job, annotations)| Act::Edit { job, annotations }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Whatever one namespace does, another one gets its part; and nothing that was admitted is lost by that.
    #[test]
    fn no_namespace_keeps_another_from_its_part(acts in prop::collection::vec(act(), 1..16)) {
        let mut node = Node::default();
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                Act::Claim { images, annotations } => {
                    // Some images are those of the other namespace, too.
                    let name = |image: usize| match image % 10 {
                        0 => format!("other-app-{image}:1"),
                        _ => format!("app-{image}:1"),
                    };
                    let images: Vec<String> = images.into_iter().map(name).collect();
                    let job = job("greedy", &format!("job-{number}"), &images, annotations);
                    if !node.claim(std::slice::from_ref(&job)).is_empty() {
                        node.jobs.pop();
                    }
                }
                Act::Withdraw(job) if job < node.jobs.len() => {
                    let gone = node.jobs.remove(job);
                    node.write(&[((*gone).clone(), Order::Withdraw)]);
                    node.jobs.pop();
                }
                Act::Edit { job, annotations } if job < node.jobs.len() => {
                    Arc::make_mut(&mut node.jobs[job]).rules.sandbox = Some(sandbox(annotations));
                    node.write(&[]);
                }
                Act::Withdraw(_) | Act::Edit { .. } => {}
            }
            prop_assert!(node.bytes() <= NODE_IMAGE_BYTES_MAX);
        }
        let before = node.object.spec.images.len();
        prop_assert_eq!(node.takes("other", GUARANTEED_JOBS), GUARANTEED_JOBS, "{} bytes", node.bytes());
        prop_assert!(before <= node.object.spec.images.len());
    }
}
