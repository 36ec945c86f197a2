use serde_json::json;

use super::*;

fn image(text: &str) -> ImageRef {
    ImageRef::parse(text).unwrap()
}

fn descriptor(fill: char) -> Descriptor {
    Descriptor {
        media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
        digest: Digest::sha256(&fill.to_string().repeat(64)).unwrap(),
        size: 7,
        platform: None,
    }
}

fn target(fill: char) -> Target {
    Target {
        shown: descriptor(fill),
        source: descriptor(fill),
    }
}

fn names(index: &Index) -> Vec<String> {
    index
        .entries()
        .iter()
        .filter_map(Entry::image)
        .map(|name| name.to_string())
        .collect()
}

#[test]
fn an_entry_looks_as_its_readers_expect() {
    let mut index = Index::default();
    assert!(!index.name(&image("nginx:1"), &target('a')));
    let written: Value = serde_json::from_slice(&index.to_bytes().unwrap()).unwrap();
    assert_eq!(
        written,
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": format!("sha256:{}", "a".repeat(64)),
                "size": 7,
                "annotations": {
                    "org.opencontainers.image.ref.name": "nginx:1",
                    "io.containerd.image.name": "docker.io/library/nginx:1",
                },
            }],
        })
    );
    assert_eq!(Index::parse(&index.to_bytes().unwrap()).unwrap(), index);
}

#[test]
fn what_others_wrote_stays() {
    let theirs = json!({
        "schemaVersion": 2,
        "annotations": {"who": "them"},
        "manifests": [
            {"mediaType": "application/x", "digest": format!("sha256:{}", "f".repeat(64)), "size": 1,
             "artifactType": "application/y", "annotations": {"org.opencontainers.image.ref.name": "NOT AN IMAGE"}},
        ],
    });
    let mut index = Index::parse(theirs.to_string().as_bytes()).unwrap();
    index.name(&image("nginx:1"), &target('a'));
    index.remove(&image("nginx:1"));
    let written: Value = serde_json::from_slice(&index.to_bytes().unwrap()).unwrap();
    assert_eq!(written["manifests"], theirs["manifests"]);
    assert_eq!(written["annotations"], theirs["annotations"]);
}

#[test]
fn a_moved_tag_takes_its_pin_and_its_aliases_along() {
    let mut index = Index::default();
    index.name(&image("nginx:1"), &target('a'));
    assert!(index.pin(&image("nginx:1")));
    index
        .alias(String::new(), &image("nginx:1"), &image("example.com/nginx:1"))
        .unwrap();
    assert!(
        index.name(&image("nginx:1"), &target('b')),
        "the old image is not needed any more"
    );
    assert!(!index.name(&image("nginx:1"), &target('b')));
    let own = index.own_references();
    assert_eq!(own.len(), 2);
    assert!(
        own.iter().all(|reference| reference.digest == descriptor('b').digest),
        "{own:?}"
    );
}

#[test]
fn removing_an_image_removes_all_its_names_and_no_other() {
    let mut index = Index::default();
    index.name(&image("nginx:1"), &target('a'));
    index.name(&image("nginx:stable"), &target('a'));
    index.name(&image("redis:7"), &target('b'));
    index.remove(&image(&format!("nginx@{}", descriptor('a').digest)));
    assert_eq!(names(&index), ["redis:7"]);
}

#[test]
fn names_of_others_are_not_taken() {
    let mut index = Index::default();
    index.name(&image("ours:1"), &target('a'));
    index.name(&image("theirs:1"), &target('b'));
    let taken = index.alias("x".to_owned(), &image("ours:1"), &image("theirs:1"));
    assert!(matches!(taken, Err(RuntimeError::ForeignReference { .. })));
    assert_eq!(names(&index), ["ours:1", "theirs:1"]);
    let missing = index.alias("x".to_owned(), &image("nosuch:1"), &image("other:1"));
    assert!(matches!(missing, Err(RuntimeError::Missing { .. })));
}

#[test]
fn pins_come_and_go() {
    let mut index = Index::default();
    assert!(!index.pin(&image("nginx:1")));
    index.name(&image("nginx:1"), &target('a'));
    let by_digest = image(&format!("nginx@{}", descriptor('a').digest));
    assert!(index.pin(&by_digest));
    assert_eq!(index.own_references()[0].image, by_digest);
    let entries = index.entries().len();
    index.unpin(&by_digest);
    assert_eq!(index.own_references(), []);
    assert_eq!(
        index.entries().len(),
        entries - 1,
        "what was made for the pin goes with it"
    );

    assert!(index.pin(&image("nginx:1")));
    index.unpin(&image("nginx:1"));
    assert_eq!(names(&index), ["nginx:1"], "a name that was pulled stays");
}

#[test]
fn an_image_in_another_form_is_known_by_the_digest_of_its_registry() {
    let mut index = Index::default();
    let converted = Target {
        shown: descriptor('c'),
        source: descriptor('a'),
    };
    index.name(&image("nginx:1"), &converted);
    index
        .alias(String::new(), &image("nginx:1"), &image("example.com/nginx:1"))
        .unwrap();
    let index = Index::parse(&index.to_bytes().unwrap()).unwrap();
    assert!(index.entries().iter().all(|entry| entry.target() == converted));
    assert!(
        index
            .find(&image(&format!("nginx@{}", descriptor('a').digest)))
            .is_some()
    );
    assert!(
        index
            .find(&image(&format!("nginx@{}", descriptor('c').digest)))
            .is_none()
    );
}
