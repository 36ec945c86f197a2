//! The API server's rule on images and `ImageRef` know the same grammar: what is let in can be pulled, and what could be
//! pulled is let in.

use kube_cel::{CompiledSchema, Validator, compile_schema};
use larder_model::{ImageRef, ImageRefError};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::Value;

use crate::schema;

/// The schema of one image, taken out of a real CRD, with the evaluator of its rules.
struct Rule {
    schema: Value,
    compiled: CompiledSchema,
}

impl Rule {
    fn of(kind: &str, path: &str) -> Self {
        let crds = larder_api::crds();
        let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let schema = schema::of(crd);
        let node = schema::nodes(&schema)
            .into_iter()
            .find(|node| node.path == path)
            .unwrap();
        Self {
            schema: node.schema.clone(),
            compiled: compile_schema(node.schema),
        }
    }

    fn accepts(&self, image: &str) -> bool {
        let length = u64::try_from(image.chars().count()).unwrap();
        let fits =
            (self.schema["minLength"].as_u64().unwrap()..=self.schema["maxLength"].as_u64().unwrap()).contains(&length);
        fits && Validator::new()
            .validate_compiled(&self.compiled, &image.into(), None)
            .is_ok()
    }
}

/// What only `ImageRef` can see: whether an IPv6 address is one, and that Docker Hub's host and `library/` count too.
fn is_beyond_the_rule(image: &str, error: &ImageRefError) -> bool {
    match error {
        ImageRefError::Host(_) => image.starts_with('['),
        ImageRefError::TooLong { .. } => true,
        _ => false,
    }
}

fn check(rule: &Rule, image: &str) -> Result<(), String> {
    match (ImageRef::parse(image), rule.accepts(image)) {
        (Ok(_), true) | (Err(_), false) => Ok(()),
        (Ok(parsed), false) => Err(format!("the rule refuses {image:?}, which is {}", parsed.canonical())),
        (Err(error), true) if is_beyond_the_rule(image, &error) => Ok(()),
        (Err(error), true) => Err(format!("the rule lets {image:?} in: {error}")),
    }
}

const HEX: &str = "f2ca1bb6c7e907d06dafe4687e579fce76b37e4e93b7605022da52e6ccc26fd2";

#[rstest]
#[case::of_an_image_pull_job("ImagePullJob", "spec.image")]
#[case::of_an_image_list_pull_job("ImageListPullJob", "spec.images[]")]
fn the_rule_agrees_on_a_table(#[case] kind: &str, #[case] path: &str) {
    let rule = Rule::of(kind, path);
    let images = [
        "ubuntu",
        "ubuntu:latest",
        "docker.io/library/ubuntu:latest",
        "index.docker.io/nginx",
        "foo/bar",
        "myregistry:5000/my/image:v1",
        "my_registry/app",
        "my_registry.example/app",
        "a.b",
        "a.b/c",
        "a..b/c",
        "-a/b",
        "Host.Example/app",
        "HOST/app",
        "host.example/App",
        "localhost",
        "localhost/app",
        "localhost:5000/app",
        "LOCALHOST/app",
        "host:0/a",
        "host:1/a",
        "host:00080/a",
        "host:65535/a",
        "host:65536/a",
        "host:99999/a",
        "host:/a",
        "[::1]/a",
        "[::1]:5000/a",
        "[fd00::1]:65536/a",
        "[::1]5000/a",
        "[]/a",
        "[g]/a",
        "[a]/a",
        "[a:]/a",
        "10.0.0.1:5000/a",
        "host-/a",
        "-host.example/a",
        "a_b",
        "a__b",
        "a___b",
        "a-b",
        "a---b",
        "a_-b",
        "a._b",
        "a-",
        "_a",
        ".a",
        "a/",
        "/a",
        "a//b",
        "A",
        "a:B",
        "a:",
        "a:.b",
        "a:-b",
        "a:_b",
        "a:b:c",
        "a b",
        " a",
        "a\n",
        "",
        "größe",
        "a@",
        "@b",
        "https://a.b/c",
        "docker://a",
        "a:b@c",
        "host:5000",
        "host:5000/",
        "a/b:5000/c",
        "sha256",
        "sha256:abc",
    ];
    let digests = [
        format!("ubuntu@sha256:{HEX}"),
        format!("ubuntu:20.04@sha256:{HEX}"),
        format!("ubuntu@sha512:{HEX}{HEX}"),
        format!("ubuntu@sha384:{HEX}{}", &HEX[..32]),
        format!("ubuntu@sha384:{HEX}"),
        format!("ubuntu@md5:{}", &HEX[..32]),
        format!("ubuntu@sha256:{}", HEX.to_uppercase()),
        format!("ubuntu@sha256:{}", &HEX[1..]),
        format!("ubuntu@sha256:{HEX}@sha256:{HEX}"),
        format!("@sha256:{HEX}"),
        HEX.to_owned(),
        HEX[1..].to_owned(),
        format!("sha256:{HEX}"),
        format!("sha512:{HEX}{HEX}"),
        format!("library/{HEX}"),
        format!("a:{}", "t".repeat(128)),
        format!("a:{}", "t".repeat(129)),
        format!("host.example/{}", "n".repeat(242)),
        format!("host.example/{}", "n".repeat(243)),
        format!("host.example/{}:{}@sha512:{HEX}{HEX}", "n".repeat(242), "t".repeat(128)),
        format!("host.example/{}:{}", "n".repeat(243), "t".repeat(20)),
    ];
    let all = images.iter().copied().chain(digests.iter().map(String::as_str));
    let wrong: Vec<String> = all.filter_map(|image| check(&rule, image).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Pieces of references, glued together: mostly nearly right, sometimes right.
fn near_references() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        3 => Just(String::new()),
        1 => "[a-zA-Z][a-zA-Z0-9_-]{0,4}([.][a-z]{0,3}){0,2}(:[0-9]{0,6})?/",
        1 => "localhost(:[0-9]{1,5})?/",
        1 => r"\[[a-f0-9:]{0,6}\]?(:[0-9]{1,5})?/",
    ];
    let path = "[a-zA-Z]?[a-z0-9]{0,4}([._/-]{1,3}[a-z0-9]{0,3}){0,3}";
    let tag = prop_oneof![2 => Just(String::new()), 2 => ":[a-zA-Z0-9_.-]{0,6}", 1 => "[:@ ]{1,2}[a-z]{0,2}"];
    let digest = prop_oneof![
        4 => Just(String::new()),
        1 => "@sha256:[a-f0-9]{64}",
        1 => "@sha(256|384|512|1):[a-fA-F0-9]{63,65}",
        1 => "@sha384:[a-f0-9]{96}",
    ];
    (host, path, tag, digest).prop_map(|(host, path, tag, digest)| format!("{host}{path}{tag}{digest}"))
}

thread_local! {
    static RULE: Rule = Rule::of("ImagePullJob", "spec.image");
}

proptest! {
    #[test]
    fn the_rule_agrees_on_near_references(image in near_references()) {
        RULE.with(|rule| check(rule, &image)).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn the_rule_agrees_on_any_text(image in ".{0,40}") {
        RULE.with(|rule| check(rule, &image)).map_err(TestCaseError::fail)?;
    }
}
