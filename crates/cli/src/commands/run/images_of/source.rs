//! Where the workloads come from: what stands behind `--images-of`.

use std::fmt;
use std::path::{Path, PathBuf};

use larder_planner::workload::kinds::{KINDS, WorkloadKind};

use crate::failure::Failure;
use crate::manifest::{self, Document};

/// A source of workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file, or standard input.
    Manifests(PathBuf),
    /// One object of the cluster.
    Object { kind: &'static WorkloadKind, name: String },
    /// All workloads of a namespace.
    Namespace(String),
}

const NAMESPACE: [&str; 3] = ["namespace", "namespaces", "ns"];

/// `deployment`, `Deployments`, `deploy`, `deployment.apps`: as kubectl takes and prints it.
fn find(word: &str) -> Option<&'static WorkloadKind> {
    let word = word.to_ascii_lowercase();
    let (word, group) = word
        .split_once('.')
        .map_or((&*word, None), |(word, group)| (word, Some(group)));
    let named = |kind: &&WorkloadKind| word == kind.word() || word == kind.plural || word == kind.short;
    let in_group = |kind: &&WorkloadKind| group.is_none_or(|group| group == kind.group);
    KINDS.iter().find(|kind| named(kind) && in_group(kind))
}

impl Source {
    /// Reads what was typed. A path that looks like KIND/NAME is meant with `./` in front of it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("give a file, -, KIND/NAME or namespace/NAME".to_owned());
        }
        let parts = text
            .split_once('/')
            .filter(|(_, name)| !name.is_empty() && !name.contains('/'));
        let of_cluster = parts.and_then(|(word, name)| {
            let name = name.to_owned();
            if NAMESPACE.contains(&&*word.to_ascii_lowercase()) {
                return Some(Self::Namespace(name));
            }
            find(word).map(|kind| Self::Object { kind, name })
        });
        Ok(of_cluster.unwrap_or_else(|| Self::Manifests(text.into())))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifests(path) => f.write_str(&manifest::shown(path)),
            Self::Object { kind, name } => write!(f, "{}/{name}", kind.word()),
            Self::Namespace(name) => write!(f, "namespace/{name}"),
        }
    }
}

/// The objects of a file. A name that could have been meant as KIND/NAME is explained.
pub(super) fn read_manifests(path: &Path) -> Result<Vec<Document>, Failure> {
    let text = path.to_string_lossy();
    let could_be_an_object = text.split('/').count() == 2 && !text.starts_with(['.', '/']);
    if could_be_an_object && !path.exists() {
        let words: Vec<String> = KINDS.iter().map(WorkloadKind::word).collect();
        return Err(Failure::wrong(format!(
            "{text} is neither a file nor KIND/NAME; the kinds are {} and namespace",
            words.join(", ")
        )));
    }
    manifest::read_all(&[path.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::standard_input("-", "standard input")]
    #[case::file("web.yaml", "web.yaml")]
    #[case::path("out/web.yaml", "out/web.yaml")]
    #[case::path_like_a_kind("./deployment/web", "./deployment/web")]
    #[case::longer_path("deployment/web/all.yaml", "deployment/web/all.yaml")]
    #[case::folder("deployment/", "deployment/")]
    #[case::object("deployment/web", "deployment/web")]
    #[case::plural("StatefulSets/web", "statefulset/web")]
    #[case::short("ds/web", "daemonset/web")]
    #[case::as_kubectl_prints_it("cronjob.batch/report", "cronjob/report")]
    #[case::namespace("ns/shop", "namespace/shop")]
    fn sources(#[case] text: &str, #[case] want: &str) {
        let source = Source::parse(text).unwrap();
        assert_eq!(source.to_string(), want);
        let is_path = matches!(source, Source::Manifests(_));
        assert_eq!(
            is_path,
            ![
                "deployment/web",
                "statefulset/web",
                "daemonset/web",
                "cronjob/report",
                "namespace/shop"
            ]
            .contains(&want)
        );
    }

    #[test]
    fn a_kind_of_another_group_is_not_meant() {
        assert_eq!(
            Source::parse("statefulset.apps.kruise.io/web"),
            Ok(Source::Manifests("statefulset.apps.kruise.io/web".into()))
        );
        let failure = read_manifests(Path::new("rollout/web")).unwrap_err();
        assert_eq!(
            failure.parts(),
            (
                2,
                Some(
                    "rollout/web is neither a file nor KIND/NAME; the kinds are deployment, statefulset, daemonset, replicaset, cronjob, job, replicationcontroller, pod and namespace"
                )
            )
        );
    }
}
