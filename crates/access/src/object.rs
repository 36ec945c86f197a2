//! The shapes of the objects, without what stands in them.

use serde_json::{Value, json};

use crate::Settings;

const RBAC: &str = "rbac.authorization.k8s.io";

/// One RBAC rule.
pub(crate) struct Rule {
    pub(crate) group: &'static str,
    pub(crate) resources: &'static [&'static str],
    pub(crate) verbs: &'static [&'static str],
    /// Empty: all of them.
    pub(crate) only: Vec<String>,
}

impl Rule {
    pub(crate) fn new(group: &'static str, resources: &'static [&'static str], verbs: &'static [&'static str]) -> Self {
        Self {
            group,
            resources,
            verbs,
            only: Vec::new(),
        }
    }

    /// The same for objects of these names alone.
    pub(crate) fn only(mut self, names: Vec<String>) -> Self {
        self.only = names;
        self
    }

    fn to_json(&self) -> Value {
        let mut rule = json!({ "apiGroups": [self.group], "resources": self.resources, "verbs": self.verbs });
        if !self.only.is_empty() {
            rule["resourceNames"] = json!(self.only);
        }
        rule
    }
}

/// Where clusters enforce the standards for pods, agents need the widest: they mount folders of the node.
pub(crate) fn namespace(settings: &Settings) -> Value {
    let mut labels = labels();
    labels["pod-security.kubernetes.io/enforce"] = json!("privileged");
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": settings.namespace, "labels": labels },
    })
}

pub(crate) fn service_account(settings: &Settings, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": namespaced(settings, name) })
}

pub(crate) fn cluster_role(name: &str, rules: &[Rule]) -> Value {
    role_of("ClusterRole", &cluster_wide(name), rules)
}

pub(crate) fn role(settings: &Settings, name: &str, rules: &[Rule]) -> Value {
    role_of("Role", &namespaced(settings, name), rules)
}

/// Binds the ClusterRole of this name to the ServiceAccount of this name.
pub(crate) fn cluster_role_binding(settings: &Settings, name: &str) -> Value {
    cluster_role_binding_to(name, name, &account(settings, name))
}

/// Binds a ClusterRole to any subject.
pub(crate) fn cluster_role_binding_to(name: &str, role: &str, subject: &Value) -> Value {
    binding_of("ClusterRoleBinding", &cluster_wide(name), "ClusterRole", role, subject)
}

/// Binds the Role of this name to the ServiceAccount of this name.
pub(crate) fn role_binding(settings: &Settings, name: &str) -> Value {
    let subject = account(settings, name);
    binding_of("RoleBinding", &namespaced(settings, name), "Role", name, &subject)
}

/// How RBAC names a group of users.
pub(crate) fn group(name: &str) -> Value {
    json!({ "apiGroup": RBAC, "kind": "Group", "name": name })
}

pub(crate) fn cluster_wide(name: &str) -> Value {
    json!({ "name": name, "labels": labels() })
}

fn role_of(kind: &str, metadata: &Value, rules: &[Rule]) -> Value {
    let rules: Vec<Value> = rules.iter().map(Rule::to_json).collect();
    json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata, "rules": rules })
}

fn binding_of(kind: &str, metadata: &Value, role_kind: &str, role: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": kind,
        "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": role_kind, "name": role },
        "subjects": [subject],
    })
}

pub(crate) fn account(settings: &Settings, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "name": name, "namespace": settings.namespace })
}

fn namespaced(settings: &Settings, name: &str) -> Value {
    json!({ "name": name, "namespace": settings.namespace, "labels": labels() })
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "larder" })
}
