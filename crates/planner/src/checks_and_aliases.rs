//! What a NodeImage's entries need beyond a claim: the checks before the pull, and the name in the job as an alias.

use larder_api::node_image::NodeImageSpec;
use larder_model::Check;

use crate::task::NodeTask;

/// A running job on a node.
#[derive(Clone, Copy, Debug)]
pub struct JobOnNode<'a> {
    /// Uid of the job.
    pub uid: &'a str,
    /// What it asks of the node.
    pub task: &'a NodeTask,
    /// What the node checks before it pulls.
    pub checks: &'a [Check],
}

/// Gives entries the checks and aliases that the running jobs on this node ask for. Asked after retention, when the owners
/// of each entry are known.
///
/// An entry that several jobs share is pulled for the one that asks for the least: a check that one of them did not ask for
/// must not fail it. An alias stays when its job is gone, as the image does; only a job with another one changes it.
pub fn apply_checks_and_aliases(spec: &mut NodeImageSpec, jobs: &[JobOnNode<'_>]) {
    for (name, image) in &mut spec.images {
        for entry in &mut image.tags {
            let owns = |uid: &str| {
                entry
                    .owner_references
                    .iter()
                    .any(|owner| owner.uid.as_deref() == Some(uid))
            };
            let mine: Vec<(&JobOnNode<'_>, Option<String>)> = jobs
                .iter()
                .filter(|job| owns(job.uid))
                .filter_map(|job| job.task.image(name, &entry.tag).map(|image| (job, image.alias())))
                .collect();
            let Some((first, _)) = mine.first() else {
                continue;
            };
            let alone = mine.len() == entry.owner_references.len();
            let asked_by_all = |check: &&Check| alone && mine.iter().all(|(job, _)| job.checks.contains(check));
            let checks = first.checks.iter().filter(asked_by_all);
            entry.checks = checks.map(ToString::to_string).collect();
            let wanted = mine.iter().filter_map(|(_, alias)| alias.as_ref());
            if !wanted.clone().any(|alias| entry.alias.as_ref() == Some(alias))
                && let Some(alias) = wanted.clone().next()
            {
                entry.alias = Some(alias.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;
    use larder_api::NodeImage;
    use larder_model::ImageRef;
    use rstest::rstest;

    use super::*;
    use crate::task::TaskImage;
    use crate::view::samples::at;

    fn task(original: &str, image: &str) -> NodeTask {
        let parse = |text| ImageRef::parse(text).unwrap();
        let image = TaskImage {
            written: original.to_owned(),
            original: parse(original),
            image: parse(image),
            secrets: Vec::new(),
        };
        NodeTask::new(vec![image], Vec::new())
    }

    fn claimed(owners: &[(&str, &NodeTask)]) -> NodeImageSpec {
        let mut spec = NodeImageSpec::default();
        for (uid, task) in owners {
            let owner = ObjectReference {
                uid: Some((*uid).to_owned()),
                ..ObjectReference::default()
            };
            task.claim(&mut spec, &NodeImage::default(), &owner, at(0));
        }
        spec
    }

    fn checks(items: &[&str]) -> Vec<Check> {
        items.iter().map(|item| Check::from(*item)).collect()
    }

    #[test]
    fn a_rewritten_image_keeps_the_name_in_the_job() {
        let rewritten = task("nginx:1", "r.example/nginx:1");
        let disk = checks(&["disk"]);
        let mut spec = claimed(&[("a", &rewritten)]);
        let job = JobOnNode {
            uid: "a",
            task: &rewritten,
            checks: &disk,
        };
        apply_checks_and_aliases(&mut spec, &[job]);
        let entry = &spec.images["r.example/nginx"].tags[0];
        assert_eq!(entry.alias.as_deref(), Some("docker.io/library/nginx:1"));
        assert_eq!(entry.checks, ["disk"]);
        apply_checks_and_aliases(&mut spec, &[]);
        assert!(
            spec.images["r.example/nginx"].tags[0].alias.is_some(),
            "an alias outlives its job"
        );
    }

    #[rstest]
    #[case::alone(&["disk", "cpu"], None, &["disk", "cpu"])]
    #[case::none_asked_for(&[], None, &[])]
    #[case::what_both_ask_for(&["disk", "cpu"], Some(&["mem", "disk"][..]), &["disk"])]
    #[case::the_other_asks_for_none(&["disk"], Some(&[][..]), &[])]
    fn a_shared_entry_has_the_checks_of_all(
        #[case] first: &[&str],
        #[case] second: Option<&[&str]>,
        #[case] want: &[&str],
    ) {
        let plain = task("nginx:1", "nginx:1");
        let (first, second) = (checks(first), second.map(checks));
        let owners = [("a", &plain), ("b", &plain)];
        let mut spec = claimed(&owners[..=usize::from(second.is_some())]);
        let mut jobs = vec![JobOnNode {
            uid: "a",
            task: &plain,
            checks: &first,
        }];
        jobs.extend(second.as_ref().map(|checks| JobOnNode {
            uid: "b",
            task: &plain,
            checks,
        }));
        apply_checks_and_aliases(&mut spec, &jobs);
        assert_eq!(spec.images["nginx"].tags[0].checks, want);
        assert_eq!(spec.images["nginx"].tags[0].alias, None);
    }

    #[test]
    fn a_job_of_another_kind_on_the_same_entry_is_not_checked() {
        let plain = task("nginx:1", "nginx:1");
        let disk = checks(&["disk"]);
        let mut spec = claimed(&[("a", &plain), ("foreign", &plain)]);
        apply_checks_and_aliases(
            &mut spec,
            &[JobOnNode {
                uid: "a",
                task: &plain,
                checks: &disk,
            }],
        );
        assert!(spec.images["nginx"].tags[0].checks.is_empty());
    }
}
