//! A job never misses an image, nor a node on which a pod may run.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Taint;
use larder_api::{ImagePullJob, ImagePullJobSpec};
use larder_model::ImageRef;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::super::*;
use super::named;
use crate::kruise::campaign::campaign;
use crate::select::NodeTraits;

const KEYS: [&str; 3] = ["zone", "disk", "cores"];
const VALUES: [&str; 3] = ["1", "2", "3"];
const NODES: [&str; 3] = ["n1", "n2", "n3"];
const TAINTS: [&str; 2] = ["gpu", "spot"];

fn labels() -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
    btree_map(select(&KEYS[..]), select(&VALUES[..]), 0..3)
}

fn expression() -> impl Strategy<Value = Value> {
    let operators = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"][..];
    (select(&KEYS[..]), select(operators), vec(select(&VALUES[..]), 1..3)).prop_map(|(key, operator, values)| {
        let values = match operator {
            "Exists" | "DoesNotExist" => Value::Null,
            "Gt" | "Lt" => json!(values[..1]),
            _ => json!(values),
        };
        json!({"key": key, "operator": operator, "values": values})
    })
}

fn field() -> impl Strategy<Value = Value> {
    let operators = &["In", "NotIn"][..];
    (select(operators), vec(select(&NODES[..]), 1..3))
        .prop_map(|(operator, values)| json!({"key": "metadata.name", "operator": operator, "values": values}))
}

fn pods() -> impl Strategy<Value = Value> {
    let term = (vec(expression(), 0..3), vec(field(), 0..2))
        .prop_map(|(expressions, fields)| json!({"matchExpressions": expressions, "matchFields": fields}));
    let tolerated = vec(select(&TAINTS[..]), 0..2);
    let name = option::weighted(0.1, select(&NODES[..]));
    (labels(), option::of(vec(term, 1..3)), tolerated, name).prop_map(|(labels, terms, tolerated, name)| {
        let required = terms.map(|terms| json!({"nodeSelectorTerms": terms}));
        let tolerated = tolerated
            .into_iter()
            .map(|key| json!({"key": key, "operator": "Exists"}));
        json!({
            "containers": [{"name": "c", "image": "a:1"}],
            "nodeSelector": labels,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            "tolerations": tolerated.collect::<Vec<_>>(),
            "nodeName": name,
        })
    })
}

fn node() -> impl Strategy<Value = (&'static str, BTreeMap<String, String>, Vec<Taint>)> {
    let taint = |key: &str| Taint {
        key: key.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let taints = vec(select(&TAINTS[..]), 0..2).prop_map(move |keys| keys.into_iter().map(taint).collect());
    let owned = |labels: BTreeMap<&str, &str>| {
        let labels = labels.into_iter();
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    (select(&NODES[..]), labels().prop_map(owned), taints)
}

proptest! {
    #[test]
    fn no_node_is_missed_and_none_is_added_unless_that_is_said(
        templates in vec(pods(), 1..4),
        nodes in vec(node(), 1..12),
    ) {
        let workloads: Vec<Workload> = templates.iter().map(|pods| named("web", "shop", pods)).collect();
        let may_run = WorkloadNodes::new(&workloads).unwrap();
        let list = match image_list(&workloads, &Accounts::new()) {
            Ok(list) => list,
            Err(refusal) => {
                prop_assert!(matches!(refusal, Refusal::NoNodes), "{refusal}");
                prop_assert!(nodes.iter().all(|(name, labels, taints)| !may_run.contain(name, labels, taints)));
                return Ok(());
            }
        };
        let spec = ImagePullJobSpec { image: "a:1".to_owned(), template: list.spec().template, ..ImagePullJobSpec::default() };
        let selection = campaign(&ImagePullJob::new("job", spec)).unwrap().selection;
        for (name, labels, taints) in &nodes {
            let selected = selection.selects(NodeTraits { name, labels, taints, runs_matching_pod: false });
            let may = may_run.contain(name, labels, taints);
            prop_assert!(selected || !may, "{name} {labels:?} {taints:?} is missed: {list:?}");
            prop_assert!(may || !selected || !list.nodes_are_exact, "{name} {labels:?} {taints:?} is added: {list:?}");
        }
    }

    #[test]
    fn every_image_once_in_whatever_order(images in vec(vec(select(&["a:1", "docker.io/library/a:1", "b", "b:latest", "c:2", "host:5000/a:1"][..]), 0..4), 1..4)) {
        let workload = |images: &Vec<&str>| {
            let containers = images.iter().map(|image| json!({"name": "c", "image": image}));
            named("web", "shop", &json!({"containers": containers.collect::<Vec<_>>()}))
        };
        let wanted: BTreeSet<ImageRef> = images.iter().flatten().map(|image| ImageRef::parse(image).unwrap()).collect();
        let mut workloads: Vec<Workload> = images.iter().map(workload).collect();
        for _ in 0..2 {
            workloads.reverse();
            let found = image_list(&workloads, &Accounts::new()).map_or(Vec::new(), |list| list.images);
            prop_assert_eq!(found.len(), wanted.len());
            let found: BTreeSet<ImageRef> = found.iter().map(|image| ImageRef::parse(image).unwrap()).collect();
            prop_assert_eq!(&found, &wanted);
        }
    }
}
