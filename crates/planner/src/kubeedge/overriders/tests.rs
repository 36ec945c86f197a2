use larder_api::image_pre_pull_job::PrePullImage;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::kubeedge::images::job_images;

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn parse(items: Value) -> Result<Overriders, OverriderError> {
    Overriders::parse(&serde_json::from_value::<Vec<OverriderItem>>(items).unwrap())
}

fn images(written: &[&str], secret: Option<&str>) -> Vec<JobImage> {
    let images: Vec<PrePullImage> = written.iter().map(|written| (*written).into()).collect();
    job_images(&images, secret).unwrap()
}

/// Applies `component operator value` to one image on a node that matches.
fn rewrite(written: &str, changes: &[(&str, &str, &str)]) -> Result<String, String> {
    let changes: Vec<Value> = changes
        .iter()
        .map(|(component, operator, value)| json!({"component": component, "operator": operator, "value": value}))
        .collect();
    let overriders = parse(json!([{"labelSelector": {}, "overriders": {"imageOverriders": changes}}])).unwrap();
    let resolved = overriders.resolve(&images(&[written], None), &[0]);
    resolved
        .map(|list| list[0].image.familiar())
        .map_err(|error| error.to_string())
}

#[rstest]
#[case::registry("harbor.docker.hub/jili/example:v1", &[("Registry", "replace", "hangzhou.registry.io")], "hangzhou.registry.io/jili/example:v1")]
#[case::registry_of_a_short_name("nginx:1.25", &[("Registry", "replace", "r.example")], "r.example/nginx:1.25")]
#[case::registry_of_a_long_name("docker.io/library/nginx:1", &[("Registry", "replace", "r.example")], "r.example/library/nginx:1")]
#[case::port("r.example/app:1", &[("Registry", "add", ":5000")], "r.example:5000/app:1")]
#[case::registry_goes("r.example/team/app:1", &[("Registry", "remove", "")], "team/app:1")]
#[case::repository("r.example/app:1", &[("Repository", "replace", "team/web")], "r.example/team/web:1")]
#[case::suffix("r.example/app:1", &[("Repository", "add", "-arm64")], "r.example/app-arm64:1")]
#[case::tag("r.example/app:1", &[("Tag", "replace", "2")], "r.example/app:2")]
#[case::tag_suffix("r.example/app:1", &[("Tag", "add", "-alpine")], "r.example/app:1-alpine")]
#[case::tag_goes("r.example/app:1", &[("Tag", "remove", "")], "r.example/app:latest")]
#[case::in_order("app:1", &[("Tag", "replace", "2"), ("Tag", "add", "-a"), ("Registry", "replace", "r.example"), ("Registry", "add", ":80")], "r.example:80/app:2-a")]
#[case::the_other_order("app:1", &[("Tag", "add", "-a"), ("Tag", "replace", "2")], "app:2")]
#[case::tag_becomes_a_digest("r.example/app:1", &[("Tag", "replace", DIGEST)], &format!("r.example/app@{DIGEST}"))]
#[case::digest_becomes_another(&format!("r.example/app@{OTHER}"), &[("Tag", "replace", DIGEST)], &format!("r.example/app@{DIGEST}"))]
#[case::digest_moves_along(&format!("r.example/app@{DIGEST}"), &[("Registry", "replace", "s.example")], &format!("s.example/app@{DIGEST}"))]
#[case::digest_beside_a_tag_moves_along(&format!("r.example/app:1@{DIGEST}"), &[("Registry", "replace", "s.example")], &format!("s.example/app@{DIGEST}"))]
#[case::tag_beside_a_digest_goes(&format!("r.example/app:1@{DIGEST}"), &[("Tag", "remove", "")], &format!("r.example/app@{DIGEST}"))]
fn rewrites(#[case] written: &str, #[case] changes: &[(&str, &str, &str)], #[case] want: &str) {
    assert_eq!(rewrite(written, changes).as_deref(), Ok(want));
}

#[rstest]
#[case::tag_that_is_none("app:1", &[("Tag", "replace", "a b")], "is not a tag")]
#[case::suffix_without_a_tag("app", &[("Tag", "add", "-alpine")], "is not a tag")]
#[case::digest_against_a_tag(&format!("app@{DIGEST}"), &[("Tag", "replace", "2")], "pinned by the digest")]
#[case::digest_against_nothing(&format!("app@{DIGEST}"), &[("Tag", "remove", "")], "pinned by the digest")]
#[case::digest_and_more(&format!("app@{DIGEST}"), &[("Tag", "add", "-a")], "pinned by the digest")]
#[case::repository_goes("r.example/app:1", &[("Repository", "remove", "")], "no valid image")]
#[case::capitals("app:1", &[("Repository", "replace", "Team/app")], "capital letters")]
#[case::registry_that_is_no_host("app:1", &[("Registry", "replace", "harbor")], "write hosts with a dot or a port")]
#[case::repository_that_is_a_host("app:1", &[("Repository", "replace", "r.example/app")], "write hosts with a dot or a port")]
fn what_makes_no_reference_is_refused_and_the_image_named(
    #[case] written: &str,
    #[case] changes: &[(&str, &str, &str)],
    #[case] want: &str,
) {
    let refusal = rewrite(written, changes).unwrap_err();
    assert!(refusal.contains(want) && refusal.contains(written), "{refusal}");
}

fn secret_after(secret: Option<&str>, changes: &Value) -> Result<Option<String>, String> {
    let overriders = parse(json!([{"nodeLabel": "region", "overriders": {"secretOverriders": changes}}])).unwrap();
    let resolved = overriders.resolve(&images(&["nginx"], secret), &[0]);
    let secret = resolved.map(|list| list[0].secrets.first().map(ToString::to_string));
    secret.map_err(|error| error.to_string())
}

#[rstest]
#[case::name_keeps_the_namespace(Some("default/secret"), json!([{"component": "SecretName", "operator": "replace", "value": "hangzhou-secret"}]), Some("default/hangzhou-secret"))]
#[case::other_spelling(Some("default/secret"), json!([{"component": "secretName", "operator": "add", "value": "-2"}, {"component": "namespace", "operator": "replace", "value": "east"}]), Some("east/secret-2"))]
#[case::anonymous(Some("default/secret"), json!([{"component": "SecretName", "operator": "remove"}]), None)]
#[case::removed_and_given_again(Some("default/secret"), json!([{"component": "SecretName", "operator": "remove"}, {"component": "SecretName", "operator": "add", "value": "x"}]), Some("default/x"))]
#[case::from_nothing(None, json!([{"component": "Namespace", "operator": "replace", "value": "east"}, {"component": "SecretName", "operator": "replace", "value": "s"}]), Some("east/s"))]
#[case::namespace_alone_is_no_secret(None, json!([{"component": "Namespace", "operator": "replace", "value": "east"}]), None)]
fn secrets(#[case] secret: Option<&str>, #[case] changes: Value, #[case] want: Option<&str>) {
    assert_eq!(secret_after(secret, &changes), Ok(want.map(str::to_owned)));
}

#[rstest]
#[case::no_namespace(json!([{"component": "SecretName", "operator": "replace", "value": "s"}]), "has no namespace")]
#[case::no_name(json!([{"component": "Namespace", "operator": "replace", "value": "A"}, {"component": "SecretName", "operator": "replace", "value": "s"}]), "does not name a Secret")]
fn secrets_that_are_none(#[case] changes: Value, #[case] want: &str) {
    let refusal = secret_after(None, &changes).unwrap_err();
    assert!(refusal.contains(want), "{refusal}");
}

#[test]
fn the_proposals_sample_in_both_spellings() {
    let inner = json!({
        "nodeLabel": "labelexample",
        "overriders": {
            "imageOverriders": [{"component": "Registry", "operator": "replace", "value": "hangzhou.registry.io"}],
            "secretOverriders": [{"component": "SecretName", "operator": "replace", "value": "hangzhou-secret"}],
        },
    });
    let wrapped = parse(json!([{"imagePrePullOverrider": inner}])).unwrap();
    assert_eq!(wrapped, parse(json!([inner])).unwrap());

    let job = images(&["harbor.docker.hub/jili/example:v1.0.0"], Some("default/secret"));
    let labels = |key: &str| [(key.to_owned(), String::new())].into();
    let there = wrapped
        .resolve(&job, &wrapped.matching(&labels("labelexample")))
        .unwrap();
    assert_eq!(there[0].image.familiar(), "hangzhou.registry.io/jili/example:v1.0.0");
    assert_eq!(
        there[0].alias().as_deref(),
        Some("harbor.docker.hub/jili/example:v1.0.0")
    );
    assert_eq!(there[0].secrets.first().unwrap().to_string(), "default/hangzhou-secret");

    let elsewhere = wrapped.resolve(&job, &wrapped.matching(&labels("other"))).unwrap();
    assert_eq!((elsewhere[0].is_rewritten(), elsewhere[0].alias()), (false, None));
    assert_eq!(elsewhere[0].secrets.first().unwrap().to_string(), "default/secret");
}

#[test]
fn every_overrider_that_matches_is_applied_in_the_order_of_the_list() {
    let change = |component: &str, operator: &str, value: &str| json!({"component": component, "operator": operator, "value": value});
    let overriders = parse(json!([
        {"nodeLabel": "region=east", "overriders": {"imageOverriders": [change("Registry", "replace", "east.example")]}},
        {"nodeLabel": "region=west", "overriders": {"imageOverriders": [change("Registry", "replace", "west.example")]}},
        {"labelSelector": {"matchExpressions": [{"key": "arch", "operator": "Exists"}]}, "overriders": {"imageOverriders": [change("Registry", "add", ":5000")]}},
    ]))
    .unwrap();
    let labels = [("region", "east"), ("arch", "arm64")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let matching = overriders.matching(&labels);
    assert_eq!(matching, [0, 2]);
    let resolved = overriders
        .resolve(&images(&["r.example/app:1"], None), &matching)
        .unwrap();
    assert_eq!(resolved[0].image.familiar(), "east.example:5000/app:1");
}

#[test]
fn two_images_that_become_one_are_a_mistake_of_the_overrider() {
    let changes = json!([{"component": "Repository", "operator": "replace", "value": "app"}]);
    let overriders = parse(json!([{"labelSelector": {}, "overriders": {"imageOverriders": changes}}])).unwrap();
    let refusal = overriders.resolve(&images(&["web:1", "db:1"], None), &[0]).unwrap_err();
    assert!(refusal.to_string().contains("\"web:1\" becomes app:1 too"), "{refusal}");
    let same = overriders
        .resolve(&images(&["web:1", "docker.io/library/web:1"], None), &[0])
        .unwrap();
    assert_eq!(same.len(), 2);
}

#[rstest]
#[case::nobody(json!([{"overriders": {}}]), "imagePrePullOverriders[0]: it says for which nodes in no way")]
#[case::two_ways(json!([{"nodeLabel": "a", "labelSelector": {}}]), "cannot be given together")]
#[case::line(json!([{"nodeLabel": "a"}, {"nodeLabel": "a b"}]), "imagePrePullOverriders[1]: nodeLabel: \"a b\"")]
#[case::component(json!([{"nodeLabel": "a", "overriders": {"imageOverriders": [{"component": "SecretName", "operator": "remove"}]}}]), "\"SecretName\" is unknown")]
#[case::operator(json!([{"nodeLabel": "a", "overriders": {"imageOverriders": [{"component": "Tag", "operator": "set", "value": "1"}]}}]), "\"set\" is unknown")]
#[case::no_value(json!([{"nodeLabel": "a", "overriders": {"imageOverriders": [{"component": "Tag", "operator": "add"}]}}]), "needs a value")]
fn refuses_what_holds_for_every_node(#[case] items: Value, #[case] want: &str) {
    let refusal = parse(items).unwrap_err().to_string();
    assert!(refusal.contains(want), "{refusal}");
}

fn changes() -> impl Strategy<Value = Vec<(&'static str, &'static str, String)>> {
    let component = proptest::sample::select(vec!["Registry", "Repository", "Tag"]);
    let operator = proptest::sample::select(vec!["add", "remove", "replace"]);
    let value = proptest::string::string_regex("[a-z0-9.:/-]{1,12}").unwrap();
    proptest::collection::vec((component, operator, value), 0..6)
}

fn borrowed<'a>(changes: &'a [(&'static str, &'static str, String)]) -> Vec<(&'a str, &'a str, &'a str)> {
    changes
        .iter()
        .map(|(component, operator, value)| (*component, *operator, value.as_str()))
        .collect()
}

proptest! {
    /// Whatever is changed, a digest stays or the node is told why not.
    #[test]
    fn a_digest_is_kept_or_the_rewrite_refused(changes in changes(), tag in proptest::option::of("[a-z]{1,4}")) {
        let written = tag.map_or(format!("r.example/app@{DIGEST}"), |tag| format!("r.example/app:{tag}@{DIGEST}"));
        match rewrite(&written, &borrowed(&changes)) {
            Ok(resolved) => prop_assert!(resolved.ends_with(DIGEST), "{resolved}"),
            Err(refusal) => prop_assert!(refusal.contains("no valid image"), "{refusal}"),
        }
    }

    /// The same labels always give the same images, and changes in two overriders are those of one after the other.
    #[test]
    fn order_is_the_order_of_the_list(first in changes(), second in changes()) {
        let together: Vec<_> = first.iter().chain(&second).cloned().collect();
        let list = |changes: &[(&str, &str, String)]| -> Value {
            changes.iter().map(|(component, operator, value)| json!({"component": component, "operator": operator, "value": value})).collect()
        };
        let item = |changes: Value| json!({"labelSelector": {}, "overriders": {"imageOverriders": changes}});
        let split = parse(json!([item(list(&first)), item(list(&second))])).unwrap();
        let job = images(&["r.example/team/app:1"], None);
        let resolved = split.resolve(&job, &[0, 1]).map(|list| list[0].image.familiar()).map_err(|error| error.to_string());
        prop_assert_eq!(&resolved, &rewrite("r.example/team/app:1", &borrowed(&together)));
        let again = split.resolve(&job, &[0, 1]).map(|list| list[0].image.familiar()).map_err(|error| error.to_string());
        prop_assert_eq!(resolved, again);
    }
}

#[rstest]
#[case::both(json!({"imagePrePullOverrider": {"nodeLabel": "a"}, "nodeLabel": "b"}), false)]
#[case::changes_beside(json!({"imagePrePullOverrider": {"nodeLabel": "a"}, "overriders": {"imageOverriders": [{"component": "Tag", "operator": "remove"}]}}), false)]
#[case::selector_beside(json!({"imagePrePullOverrider": {"nodeLabel": "a"}, "labelSelector": {}}), false)]
#[case::nothing_beside(json!({"imagePrePullOverrider": {"nodeLabel": "a"}}), true)]
#[case::empty_beside(json!({"imagePrePullOverrider": {"nodeLabel": "a"}, "nodeLabel": "", "overriders": {}}), true)]
fn fields_in_both_places_are_not_dropped_silently(#[case] item: Value, #[case] good: bool) {
    let said = parse(json!([item])).map_err(|error| error.to_string());
    match said {
        Ok(_) => assert!(good),
        Err(why) => assert!(!good && why.contains("write them in one place"), "{why}"),
    }
}
