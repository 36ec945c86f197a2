//! What a NodeImage's entries need beyond a claim: the checks before the pull, and the name in the job as an alias.

use larder_api::node_image::NodeImageSpec;

use super::task::NodeTask;

/// A running job on a node.
#[derive(Clone, Copy, Debug)]
pub struct Tenant<'a> {
    /// Uid of the job.
    pub uid: &'a str,
    /// What it asks of the node.
    pub task: &'a NodeTask,
    /// What the node checks before it pulls.
    pub checks: &'a [String],
}

/// Gives entries the checks and aliases that the running jobs on this node ask for. Asked after retention, when the owners
/// of each entry are known.
///
/// An entry that several jobs share is pulled for the one that asks for the least: a check that one of them did not ask for
/// must not fail it. An alias stays when its job is gone, as the image does; only a job with another one changes it.
pub fn dress(spec: &mut NodeImageSpec, tenants: &[Tenant<'_>]) {
    for (name, image) in &mut spec.images {
        for entry in &mut image.tags {
            let owns = |uid: &str| {
                entry
                    .owner_references
                    .iter()
                    .any(|owner| owner.uid.as_deref() == Some(uid))
            };
            let mine: Vec<(&Tenant<'_>, Option<String>)> = tenants
                .iter()
                .filter(|tenant| owns(tenant.uid))
                .filter_map(|tenant| tenant.task.image(name, &entry.tag).map(|image| (tenant, image.alias())))
                .collect();
            let Some((first, _)) = mine.first() else {
                continue;
            };
            let alone = mine.len() == entry.owner_references.len();
            let asked_by_all = |check: &&String| mine.iter().all(|(tenant, _)| tenant.checks.contains(check));
            let checks: Vec<String> = first.checks.iter().filter(asked_by_all).cloned().collect();
            entry.checks = if alone { checks } else { Vec::new() };
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
    use crate::prepull::overriders::ResolvedImage;
    use crate::view::samples::at;

    fn task(original: &str, image: &str) -> NodeTask {
        let parse = |text| ImageRef::parse(text).unwrap();
        let image = ResolvedImage {
            written: original.to_owned(),
            original: parse(original),
            image: parse(image),
            secret: None,
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

    fn checks(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn a_rewritten_image_keeps_the_name_in_the_job() {
        let rewritten = task("nginx:1", "r.example/nginx:1");
        let disk = checks(&["disk"]);
        let mut spec = claimed(&[("a", &rewritten)]);
        let tenant = Tenant {
            uid: "a",
            task: &rewritten,
            checks: &disk,
        };
        dress(&mut spec, &[tenant]);
        let entry = &spec.images["r.example/nginx"].tags[0];
        assert_eq!(entry.alias.as_deref(), Some("docker.io/library/nginx:1"));
        assert_eq!(entry.checks, disk);
        dress(&mut spec, &[]);
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
        let mut tenants = vec![Tenant {
            uid: "a",
            task: &plain,
            checks: &first,
        }];
        tenants.extend(second.as_ref().map(|checks| Tenant {
            uid: "b",
            task: &plain,
            checks,
        }));
        dress(&mut spec, &tenants);
        assert_eq!(spec.images["nginx"].tags[0].checks, want);
        assert_eq!(spec.images["nginx"].tags[0].alias, None);
    }

    #[test]
    fn a_job_of_another_kind_on_the_same_entry_is_not_checked() {
        let plain = task("nginx:1", "nginx:1");
        let disk = checks(&["disk"]);
        let mut spec = claimed(&[("a", &plain), ("kruise", &plain)]);
        dress(
            &mut spec,
            &[Tenant {
                uid: "a",
                task: &plain,
                checks: &disk,
            }],
        );
        assert!(spec.images["nginx"].tags[0].checks.is_empty());
    }
}
