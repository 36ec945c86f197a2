//! The guides' examples, which are also the samples in `deploy/examples`: accepted through both versions, and stored with
//! the documented defaults.

use std::path::{Path, PathBuf};

use larder_testkit::unique_name;
use rstest::rstest;
use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::target::Target;
use crate::yaml::yaml;

/// The examples with their file names, sorted.
pub(crate) fn all() -> Vec<(PathBuf, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples");
    let mut files: Vec<PathBuf> = ["kruise", "kubeedge"]
        .iter()
        .flat_map(|dialect| std::fs::read_dir(folder.join(dialect)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let manifest = yaml(&std::fs::read_to_string(&file).unwrap());
            (file, manifest)
        })
        .collect()
}

#[rstest]
#[case::through_the_stored_version(Kind::stored as fn(Kind) -> _)]
#[case::through_the_old_version(Kind::old as fn(Kind) -> _)]
#[tokio::test]
async fn come_back_with_the_documented_defaults(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] version: fn(Kind) -> crate::kind::Resource,
) {
    let server = target.server().await;
    let mut stored = Map::new();
    for (file, mut manifest) in all() {
        let resource = version(Kind::named(manifest["kind"].as_str().unwrap()));
        manifest["apiVersion"] = resource.api_version().into();
        manifest["metadata"]["name"] = unique_name("example").into();
        let object = server.create_strictly(resource, &manifest).await.accepted();
        assert_eq!(object["metadata"]["labels"], manifest["metadata"]["labels"]);
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        stored.insert(name, object["spec"].clone());
    }
    insta::assert_yaml_snapshot!("examples", stored);
}
