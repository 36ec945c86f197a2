//! The types read every example and write it back without loss.

use std::path::Path;

use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn read_and_written<T: Serialize + DeserializeOwned>(manifest: &Value) -> Value {
    let object: T = serde_json::from_value(manifest.clone()).unwrap();
    serde_json::to_value(object).unwrap()
}

/// What stands in `before` and not in `after`. What is only in `after` is a default.
fn lost(before: &Value, after: &Value, path: &str, into: &mut Vec<String>) {
    match before {
        Value::Object(members) => {
            for (name, member) in members {
                // The proposal's spelling is read, and written as everybody else spells it.
                let name = if name == "respo" { "repo" } else { name };
                lost(member, &after[name], &format!("{path}.{name}"), into);
            }
        }
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                lost(item, &after[position], &format!("{path}[{position}]"), into);
            }
        }
        scalar if scalar != after => into.push(format!("{path}: {scalar} became {after}")),
        _ => {}
    }
}

#[test]
fn are_read_and_written_without_loss() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples");
    let mut count = 0;
    for dialect in ["kruise", "kubeedge"] {
        for entry in std::fs::read_dir(folder.join(dialect)).unwrap() {
            let file = entry.unwrap().path();
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.starts_with("# "), "{} does not say what it is for", file.display());
            let mut manifest: Value = serde_saphyr::from_str(&text).unwrap();
            let written = match manifest["kind"].as_str().unwrap() {
                "ImagePullJob" => read_and_written::<ImagePullJob>(&manifest),
                "ImageListPullJob" => read_and_written::<ImageListPullJob>(&manifest),
                "NodeImage" => read_and_written::<NodeImage>(&manifest),
                "ImagePrePullJob" => read_and_written::<ImagePrePullJob>(&manifest),
                other => panic!("{} is a {other}", file.display()),
            };
            // There is one type per kind; it writes the stored version.
            manifest["apiVersion"] = written["apiVersion"].clone();
            let mut losses = Vec::new();
            lost(&manifest, &written, "", &mut losses);
            assert!(losses.is_empty(), "{}: {losses:?}", file.display());
            count += 1;
        }
    }
    assert!(count >= 18, "only {count} examples");
}
