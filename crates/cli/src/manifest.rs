//! Files with Kubernetes objects: YAML or JSON, several documents in one.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::{Failure, first_line};

/// One object of a file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// Where it stands, for error messages: `job.yaml`, or `job.yaml, document 2`.
    pub(crate) place: String,
    /// The object.
    pub(crate) object: Value,
}

impl Document {
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// `ImagePullJob web`, for messages.
    pub(crate) fn title(&self) -> String {
        let name = [self.text("/metadata/name"), self.text("/metadata/generateName")];
        let name = name
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or("(without a name)");
        format!("{} {name}", self.text("/kind"))
    }
}

/// Reads all objects of these files.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    for path in paths {
        documents.extend(read(path)?);
    }
    Ok(documents)
}

fn read(path: &Path) -> Result<Vec<Document>, Failure> {
    let file = read_text(path)?;
    parse(&file.shown, &file.text)
}

/// A file that was read.
pub(crate) struct File {
    /// Its name in messages.
    pub(crate) shown: String,
    pub(crate) text: String,
}

/// Reads a file, or standard input for `-`.
pub(crate) fn read_text(path: &Path) -> Result<File, Failure> {
    let shown = if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    if path.is_dir() {
        return Err(Failure::wrong(format!(
            "{shown} is a folder; name the files in it, as in {}",
            path.join("*.yaml").display()
        )));
    }
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Failure::wrong(format!("{shown} cannot be read: {error}")))?;
    Ok(File { shown, text })
}

/// Reads all objects of a text; `shown` says where it comes from. `List` objects are taken apart.
pub(crate) fn parse(shown: &str, text: &str) -> Result<Vec<Document>, Failure> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| Failure::wrong(format!("{shown} is not YAML: {}", why(&error.to_string()))))?;
    let several = documents.len() > 1;
    let mut found = Vec::new();
    for (number, object) in documents
        .into_iter()
        .enumerate()
        .filter(|(_, object)| !object.is_null())
    {
        let place = if several {
            format!("{shown}, document {}", number + 1)
        } else {
            shown.to_owned()
        };
        if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && object["items"].is_array() {
            let items = object["items"].as_array().cloned().unwrap_or_default();
            found.extend(items.into_iter().map(|object| Document {
                place: place.clone(),
                object,
            }));
        } else {
            found.push(Document { place, object });
        }
    }
    for document in &found {
        if document.text("/apiVersion").is_empty() || document.text("/kind").is_empty() {
            return Err(Failure::wrong(format!(
                "{}: not a Kubernetes object; apiVersion and kind must be given",
                document.place
            )));
        }
    }
    if found.is_empty() {
        return Err(Failure::wrong(format!("{shown} holds no object")));
    }
    Ok(found)
}

/// What the reader says, without advice to programmers.
fn why(text: &str) -> String {
    let line = first_line(text);
    match line.split_once(", set DuplicateKeyPolicy") {
        Some((said, _)) => format!("{said}; keep one of them"),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_documents_and_lists_are_taken_apart() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- {apiVersion: v1, kind: B}\n---\napiVersion: v1\nkind: C\n";
        let found = parse("x.yaml", text).unwrap();
        let kinds: Vec<&str> = found.iter().map(|document| document.text("/kind")).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
        assert_eq!(found[2].place, "x.yaml, document 2");
    }

    #[test]
    fn json_is_yaml() {
        assert_eq!(parse("x", r#"{"apiVersion": "v1", "kind": "A"}"#).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_object_is_said_with_its_place() {
        let failure = parse("x.yaml", "kind: A\n").unwrap_err();
        assert_eq!(
            failure.parts(),
            (
                2,
                Some("x.yaml: not a Kubernetes object; apiVersion and kind must be given")
            )
        );
        assert_eq!(
            parse("x.yaml", "").unwrap_err().parts(),
            (2, Some("x.yaml holds no object"))
        );
        assert!(
            parse("x.yaml", "kind: A\nkind: B\n")
                .unwrap_err()
                .parts()
                .1
                .unwrap()
                .ends_with("; keep one of them")
        );
        assert!(
            parse("x.yaml", "a: [")
                .unwrap_err()
                .parts()
                .1
                .unwrap()
                .starts_with("x.yaml is not YAML: ")
        );
    }
}
