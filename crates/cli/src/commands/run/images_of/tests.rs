use rstest::rstest;
use serde_json::json;

use super::*;
use crate::manifest;

/// As `helm template` prints it: comments, and documents that a condition left empty.
const HELM: &str = "---\n# Source: shop/templates/serviceaccount.yaml\n\n---\n# Source: shop/templates/service.yaml\n\
    apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n---\n# Source: shop/templates/deployment.yaml\n\
    apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      \
    containers:\n        - name: web\n          image: \"web:1\"\n---\n\n---\n# Source: shop/templates/job.yaml\n\
    apiVersion: batch/v1\nkind: Job\nmetadata: {name: setup, namespace: ops}\n\
    spec: {template: {spec: {containers: [{name: c, image: 'setup:1'}]}}}\n";

fn found(text: &str) -> Result<Vec<Workload>, Failure> {
    let source = Source::parse("web.yaml").unwrap();
    workloads(&source, &manifest::parse("web.yaml", text).unwrap(), "shop")
}

#[test]
fn what_helm_prints() {
    let found = found(HELM).unwrap();
    let found: Vec<(String, &str)> = found.iter().map(|one| (one.title(), one.namespace.as_str())).collect();
    assert_eq!(
        found,
        [("Deployment web".to_owned(), "shop"), ("Job setup".to_owned(), "ops")]
    );
}

#[rstest]
#[case::nothing_with_pods(
    "apiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: Service\n",
    "web.yaml: no object has pods; these were found: Service 2"
)]
#[case::no_template(
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n",
    "web.yaml: Deployment web: spec.template.spec is missing"
)]
#[case::with_its_place(
    "apiVersion: v1\nkind: Service\n---\n# nothing\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: 7}\n",
    "web.yaml, document 2: Pod p: spec: invalid type: integer `7`, expected a sequence"
)]
#[case::empty_list(
    "apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: Service\n",
    "web.yaml: no object has pods; these were found: Service 1"
)]
fn what_cannot_be_used_is_said(#[case] text: &str, #[case] says: &str) {
    assert_eq!(found(text).unwrap_err().parts(), (2, Some(says)));
}

#[rstest]
#[case::object("deploy/web", "images-of-deployment-web-")]
#[case::namespace("ns/shop", "images-of-namespace-shop-")]
#[case::manifests("-", "images-of-manifests-")]
#[case::long(
    "sts/a-name-that-is-much-longer-than-what-one-would-type",
    "images-of-statefulset-a-name-that-is-much-longer-t-"
)]
fn names(#[case] source: &str, #[case] want: &str) {
    assert_eq!(name_prefix(&Source::parse(source).unwrap()), want);
}

#[test]
fn the_job() {
    let source = Source::parse("-").unwrap();
    let workloads = found(HELM).unwrap();
    let list = workload::image_list(&workloads, &Accounts::new()).unwrap();
    let document = document(&source, &list).unwrap();
    assert_eq!(document.title(), "ImageListPullJob images-of-manifests-");
    let tolerated = |key: &str, effect: Option<&str>| match effect {
        Some(effect) => json!({"key": key, "operator": "Exists", "effect": effect}),
        None => json!({"key": key, "operator": "Exists"}),
    };
    assert_eq!(
        document.object,
        json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob",
            "metadata": {"generateName": "images-of-manifests-", "namespace": "shop"},
            "spec": {
                "images": ["web:1", "setup:1"], "imagePullPolicy": "IfNotPresent", "parallelism": 10,
                "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 3},
                "completionPolicy": {"ttlSecondsAfterFinished": 3600},
                "tolerations": [
                    tolerated("larder.dev/warming", None),
                    tolerated("node.kubernetes.io/not-ready", Some("NoExecute")),
                    tolerated("node.kubernetes.io/unreachable", Some("NoExecute")),
                ],
            },
        })
    );
}

#[test]
fn an_image_that_nobody_can_have_is_refused() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: 'REPLACE/ME'}, {name: d, image: 'a:1'}]}\n";
    let list = workload::image_list(&found(text).unwrap(), &Accounts::new()).unwrap();
    let failure = refuse_invalid(&Source::parse("-").unwrap(), &list).unwrap_err();
    let (code, says) = failure.parts();
    assert_eq!(code, 2);
    assert!(
        says.unwrap()
            .starts_with("standard input: Pod p: REPLACE/ME is no image: "),
        "{says:?}"
    );
}
