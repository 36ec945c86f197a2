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

/// How a file is called in messages.
pub(crate) fn shown(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// A file that was read.
pub(crate) struct File {
    /// Its name in messages.
    pub(crate) shown: String,
    pub(crate) text: String,
}

/// Reads a file, or standard input for `-`.
pub(crate) fn read_text(path: &Path) -> Result<File, Failure> {
    let shown = shown(path);
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
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| not_yaml(shown, text, &error))?;
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

/// Bounds for what charts and clusters print: thousands of objects, large CRDs. Those on aliases, which can make much of
/// little, stay as they are.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 100_000,
            max_nodes: 20_000_000,
            max_events: 80_000_000,
        },
    }
}

fn not_yaml(shown: &str, text: &str, error: &serde_saphyr::Error) -> Failure {
    let line = error.location().and_then(|place| usize::try_from(place.line()).ok());
    let place = match line.map(|line| document_at(text, line)) {
        Some((number, true)) => format!("{shown}, document {number},"),
        _ => shown.to_owned(),
    };
    Failure::wrong(format!("{place} is not YAML: {}", why(&error.to_string())))
}

/// The number of the document that a line belongs to, and whether there are several. Empty ones do not count, as when
/// documents are read.
fn document_at(text: &str, line: usize) -> (usize, bool) {
    let (mut ended, mut number, mut has_content) = (0, 1, false);
    for (index, content) in text.lines().enumerate() {
        let is_separator = content == "---" || content.starts_with("--- ");
        if is_separator && has_content {
            ended += 1;
            has_content = false;
        }
        let content = content.trim_start_matches("---").trim();
        has_content |= !content.is_empty() && !content.starts_with(['#', '%']);
        if index < line {
            number = ended + 1;
        }
    }
    (number, 1 < ended + usize::from(has_content))
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
    }

    #[test]
    fn a_mistake_has_its_document_and_line() {
        let says = |text: &str| parse("x.yaml", text).unwrap_err().sentence().to_owned();
        let alone = says("a: [");
        assert!(alone.starts_with("x.yaml is not YAML: "), "{alone}");
        let second =
            says("# comment\n---\n# empty\n---\napiVersion: v1\nkind: A\n---\nkind: B\n  spec: 1\n---\nkind: C\n");
        assert!(second.starts_with("x.yaml, document 2, is not YAML: "), "{second}");
        assert!(second.contains("line 9"), "{second}");
    }

    #[test]
    fn the_output_of_a_large_cluster_is_read() {
        let pod = "- {apiVersion: v1, kind: Pod, spec: {a: [1, 2, 3, 4, 5, 6, 7, 8, 9]}}\n";
        let text = format!("apiVersion: v1\nkind: List\nitems:\n{}", pod.repeat(20_000));
        assert_eq!(parse("x", &text).unwrap().len(), 20_000);
        assert_eq!(
            parse("x", &"kind: A\napiVersion: v1\n---\n".repeat(2_000))
                .unwrap()
                .len(),
            2_000
        );
    }
}
