//! The kinds this server serves: names, versions, schemas and columns of each.
//!
//! Built once at start from the built-in kinds and the given CustomResourceDefinitions; never changes afterwards.
//! Knows nothing of stored objects.

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec, CustomResourceDefinitionVersion,
};
use serde_json::Value;

use crate::{
    builtin::{self, Builtin},
    error::Subject,
    schema::{Schema, SchemaError},
    table::Column,
};

/// Why a CustomResourceDefinition cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A version has no schema, or one that cannot be used.
    #[error("reading the schema of {crd}, version {version}")]
    Schema {
        /// Name of the CustomResourceDefinition.
        crd: String,
        /// Version whose schema is at fault.
        version: String,
        /// What is wrong with it.
        #[source]
        source: SchemaError,
    },
    /// No version is marked as the one to store.
    #[error("CustomResourceDefinition {0} marks no version as `storage: true`; mark one")]
    NoStorageVersion(String),
    /// Objects of different versions would need a webhook to convert.
    #[error("CustomResourceDefinition {0} asks for conversion by webhook; only conversion `None` is served here")]
    Conversion(String),
}

/// A value by which lists can be filtered: `spec.nodeName=a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selectable {
    pub(crate) label: String,
    pub(crate) path: Vec<String>,
}

impl Selectable {
    /// Reads `.spec.nodeName` or `spec.nodeName`.
    pub(crate) fn new(dotted: &str) -> Self {
        let label = dotted.trim_start_matches('.').to_owned();
        let path = label.split('.').map(str::to_owned).collect();
        Self { label, path }
    }

    /// The value of the field as a selector compares it.
    pub(crate) fn value(&self, object: &crate::object::Object) -> String {
        let mut steps = self.path.iter();
        let mut found = steps.next().and_then(|first| object.get(first));
        for step in steps {
            found = found.and_then(|value| value.get(step));
        }
        match found {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// How an endpoint's objects relate to what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The same object; only `apiVersion` differs between versions.
    Stored,
    /// `events.k8s.io/v1`, which calls the fields of a core Event by other names.
    EventsV1,
}

/// One served version of a resource.
pub(crate) struct Version {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) schema: Option<Arc<Schema>>,
    pub(crate) status: bool,
    pub(crate) columns: Vec<Column>,
    pub(crate) deprecation: Option<String>,
}

impl Version {
    /// `group/version`, or `v1` for core.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.group, self.name)
        }
    }
}

/// One kind and everything that is the same in all of its versions.
pub(crate) struct Resource {
    pub(crate) id: usize,
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) versions: Vec<Version>,
    /// Index in `versions` of the one that objects are kept in.
    pub(crate) storage: usize,
    pub(crate) selectable: Vec<Selectable>,
    pub(crate) builtin: Option<&'static Builtin>,
}

impl Resource {
    /// `plural.group`, by which the store files objects.
    pub(crate) fn storage_name(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The words by which refusals name this resource when it is reached through `version`.
    pub(crate) fn subject(&self, version: &Version) -> Subject {
        Subject {
            group: version.group.clone(),
            plural: self.plural.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Whether `metadata.generation` counts changes of the specification.
    pub(crate) fn has_generation(&self) -> bool {
        self.builtin.is_none_or(|builtin| builtin.generation)
    }

    /// Verbs in discovery.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.is_read_only() {
            &["get", "list", "watch"]
        } else {
            &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ]
        }
    }

    /// Whether objects of this kind come with the server and cannot be written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.builtin.is_some_and(|builtin| builtin.read_only)
    }
}

/// Every kind, by id and by path.
pub(crate) struct Registry {
    resources: Vec<Arc<Resource>>,
    by_path: HashMap<(String, String, String), (usize, usize)>,
    by_kind: HashMap<(String, String), usize>,
    definitions: Vec<CustomResourceDefinition>,
}

impl Registry {
    /// The built-in kinds and `definitions`.
    pub(crate) fn new(definitions: Vec<CustomResourceDefinition>) -> Result<Self, RegistryError> {
        let mut resources = Vec::new();
        for builtin in builtin::KINDS {
            resources.push(builtin.resource(resources.len()));
        }
        for definition in &definitions {
            resources.push(custom(resources.len(), definition)?);
        }
        let mut by_path = HashMap::new();
        let mut by_kind = HashMap::new();
        for resource in &resources {
            for (index, version) in resource.versions.iter().enumerate() {
                let path = (version.group.clone(), version.name.clone(), resource.plural.clone());
                by_path.insert(path, (resource.id, index));
                by_kind.insert((version.group.clone(), resource.kind.clone()), resource.id);
            }
        }
        Ok(Self {
            resources: resources.into_iter().map(Arc::new).collect(),
            by_path,
            by_kind,
            definitions,
        })
    }

    /// All resources, in order of their ids.
    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The resource with this id. Ids come from this registry.
    pub(crate) fn get(&self, id: usize) -> &Arc<Resource> {
        &self.resources[id]
    }

    /// The resource and the index of the version served at this path.
    pub(crate) fn at(&self, group: &str, version: &str, plural: &str) -> Option<(&Arc<Resource>, usize)> {
        let path = (group.to_owned(), version.to_owned(), plural.to_owned());
        let (id, index) = *self.by_path.get(&path)?;
        Some((&self.resources[id], index))
    }

    /// The resource of a kind, as an owner reference names it.
    pub(crate) fn of_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        let id = *self.by_kind.get(&(group.to_owned(), kind.to_owned()))?;
        Some(&self.resources[id])
    }

    /// The id of a resource that is always there.
    pub(crate) fn builtin_id(&self, plural: &str) -> usize {
        self.resources
            .iter()
            .position(|resource| resource.builtin.is_some() && resource.plural == plural)
            .unwrap_or_default()
    }

    /// The definitions the custom kinds came from.
    pub(crate) fn definitions(&self) -> &[CustomResourceDefinition] {
        &self.definitions
    }

    /// Group and version of every endpoint, groups in order of registration, newest version of a group first.
    pub(crate) fn group_versions(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for version in self.resources.iter().flat_map(|resource| &resource.versions) {
            let place = if let Some(place) = groups.iter().position(|(group, _)| *group == version.group) {
                place
            } else {
                groups.push((version.group.clone(), Vec::new()));
                groups.len() - 1
            };
            if !groups[place].1.contains(&version.name) {
                groups[place].1.push(version.name.clone());
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by_key(|version| std::cmp::Reverse(kube_core::Version::parse(version).priority()));
        }
        groups
    }
}

fn custom(id: usize, definition: &CustomResourceDefinition) -> Result<Resource, RegistryError> {
    let spec = &definition.spec;
    let crd = definition.metadata.name.clone().unwrap_or_default();
    if spec
        .conversion
        .as_ref()
        .is_some_and(|conversion| conversion.strategy != "None")
    {
        return Err(RegistryError::Conversion(crd));
    }
    let served: Vec<&CustomResourceDefinitionVersion> = spec.versions.iter().filter(|version| version.served).collect();
    let storage = served
        .iter()
        .position(|version| version.storage)
        .ok_or_else(|| RegistryError::NoStorageVersion(crd.clone()))?;
    let versions = served.iter().map(|version| custom_version(&crd, spec, version));
    let versions = versions.collect::<Result<Vec<Version>, RegistryError>>()?;
    let mut selectable: Vec<Selectable> = Vec::new();
    for field in served
        .iter()
        .flat_map(|version| version.selectable_fields.iter().flatten())
    {
        let field = Selectable::new(&field.json_path);
        if !selectable.contains(&field) {
            selectable.push(field);
        }
    }
    let names = &spec.names;
    Ok(Resource {
        id,
        group: spec.group.clone(),
        plural: names.plural.clone(),
        singular: names.singular.clone().unwrap_or_else(|| names.kind.to_lowercase()),
        kind: names.kind.clone(),
        list_kind: names.list_kind.clone().unwrap_or_else(|| format!("{}List", names.kind)),
        short_names: names.short_names.clone().unwrap_or_default(),
        categories: names.categories.clone().unwrap_or_default(),
        namespaced: spec.scope == "Namespaced",
        versions,
        storage,
        selectable,
        builtin: None,
    })
}

fn custom_version(
    crd: &str,
    spec: &CustomResourceDefinitionSpec,
    version: &CustomResourceDefinitionVersion,
) -> Result<Version, RegistryError> {
    let schema = version.schema.as_ref();
    let schema = schema
        .and_then(|schema| schema.open_api_v3_schema.as_ref())
        .ok_or(SchemaError::Missing)
        .and_then(Schema::compile)
        .map_err(|source| RegistryError::Schema {
            crd: crd.to_owned(),
            version: version.name.clone(),
            source,
        })?;
    Ok(Version {
        group: spec.group.clone(),
        name: version.name.clone(),
        shape: Shape::Stored,
        schema: Some(Arc::new(schema)),
        status: version.subresources.as_ref().is_some_and(|sub| sub.status.is_some()),
        columns: Column::of_definition(version.additional_printer_columns.as_deref().unwrap_or_default()),
        deprecation: deprecation(spec, version),
    })
}

fn deprecation(spec: &CustomResourceDefinitionSpec, version: &CustomResourceDefinitionVersion) -> Option<String> {
    version.deprecated.unwrap_or_default().then(|| {
        version
            .deprecation_warning
            .clone()
            .unwrap_or_else(|| format!("{}/{} {} is deprecated", spec.group, version.name, spec.names.kind))
    })
}
