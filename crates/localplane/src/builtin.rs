//! The kinds that come with Kubernetes and that the rest of Larder uses.
//!
//! Their fields are those of the typed API: an object is read into its type and written out again, which refuses wrong
//! types and drops unknown fields. Only the rules that Larder or kubectl meet are checked beyond that.

mod defaults;
mod event;
mod rules;

use std::borrow::Cow;

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) use event::{from_events_v1, to_events_v1};

use crate::{
    error::Cause,
    object::Object,
    registry::{Resource, Selectable, Shape, Version},
    table::Column,
};

/// A built-in kind.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of the kind, independent of the others"
)]
pub(crate) struct Builtin {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    /// Served for reading; written by the server alone.
    pub(crate) read_only: bool,
    /// Whether the kind counts changes of its specification.
    pub(crate) generation: bool,
    /// Whether an update must say which version it replaces.
    pub(crate) conditional_update: bool,
    selectable: &'static [&'static str],
    /// Reads the object into its type and writes it out again.
    pub(crate) normalize: fn(Value) -> Result<Value, serde_json::Error>,
    /// Fills in what the kind defaults.
    pub(crate) default: fn(&mut Object),
    /// What is wrong with an object, given what it replaces.
    pub(crate) check: fn(&Object, Option<&Object>) -> Vec<Cause>,
    /// Adds the schema that kubectl explains and validates by; returns its name among the definitions.
    pub(crate) schema: fn(&mut SchemaGenerator) -> Cow<'static, str>,
    pub(crate) columns: fn() -> Vec<Column>,
}

fn normalize<T: DeserializeOwned + Serialize>(value: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Cow<'static, str> {
    generator.subschema_for::<T>();
    T::schema_name()
}

macro_rules! kind {
    ($type:ty { $($field:ident: $value:expr),* $(,)? }) => {
        Builtin {
            normalize: normalize::<$type>,
            schema: schema::<$type>,
            $($field: $value,)*
            ..BASE
        }
    };
}

const BASE: Builtin = Builtin {
    group: "",
    version: "v1",
    plural: "",
    kind: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    status: false,
    read_only: false,
    generation: false,
    conditional_update: false,
    selectable: &[],
    normalize: normalize::<Value>,
    default: |_| {},
    check: |_, _| Vec::new(),
    schema: schema::<Value>,
    columns: crate::table::builtin::plain,
};

/// All of them.
pub(crate) static KINDS: &[Builtin] = &[
    kind!(Namespace {
        plural: "namespaces",
        kind: "Namespace",
        short_names: &["ns"],
        namespaced: false,
        status: true,
        selectable: &["status.phase"],
        default: defaults::namespace,
        columns: crate::table::builtin::namespace,
    }),
    kind!(Node {
        plural: "nodes",
        kind: "Node",
        short_names: &["no"],
        namespaced: false,
        status: true,
        selectable: &["spec.unschedulable"],
        columns: crate::table::builtin::node,
    }),
    kind!(Pod {
        plural: "pods",
        kind: "Pod",
        short_names: &["po"],
        categories: &["all"],
        status: true,
        generation: true,
        selectable: &[
            "spec.nodeName",
            "status.phase",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        default: defaults::pod,
        check: rules::pod,
        columns: crate::table::builtin::pod,
    }),
    kind!(Secret {
        plural: "secrets",
        kind: "Secret",
        selectable: &["type"],
        default: defaults::secret,
        check: rules::secret,
        columns: crate::table::builtin::secret,
    }),
    kind!(ConfigMap {
        plural: "configmaps",
        kind: "ConfigMap",
        short_names: &["cm"],
        check: rules::config_map,
        columns: crate::table::builtin::config_map,
    }),
    kind!(Event {
        plural: "events",
        kind: "Event",
        short_names: &["ev"],
        selectable: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        default: defaults::event,
        check: rules::event,
        columns: crate::table::builtin::event,
    }),
    kind!(ServiceAccount {
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short_names: &["sa"],
        columns: crate::table::builtin::service_account,
    }),
    kind!(Lease {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        conditional_update: true,
        check: rules::lease,
        columns: crate::table::builtin::lease,
    }),
    kind!(CustomResourceDefinition {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        read_only: true,
        generation: true,
        columns: crate::table::builtin::definition,
    }),
];

impl Builtin {
    /// Whether objects of this kind expire.
    pub(crate) fn is_event(&self) -> bool {
        self.kind == "Event"
    }

    /// Whether names of this kind are DNS labels.
    pub(crate) fn is_namespace(&self) -> bool {
        self.kind == "Namespace"
    }

    /// Whether the kubelet, not the server, ends objects of this kind.
    pub(crate) fn is_pod(&self) -> bool {
        self.kind == "Pod"
    }

    pub(crate) fn resource(&'static self, id: usize) -> Resource {
        let version = |group: &str, shape| Version {
            group: group.to_owned(),
            name: self.version.to_owned(),
            shape,
            schema: None,
            status: self.status,
            columns: (self.columns)(),
            deprecation: None,
        };
        let mut versions = vec![version(self.group, Shape::Stored)];
        if self.is_event() {
            versions.push(version("events.k8s.io", Shape::EventsV1));
        }
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Resource {
            id,
            group: self.group.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            short_names: owned(self.short_names),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            versions,
            storage: 0,
            selectable: self.selectable.iter().map(|field| Selectable::new(field)).collect(),
            builtin: Some(self),
        }
    }
}
