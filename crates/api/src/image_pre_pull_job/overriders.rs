//! Per-region rewrites of images and secrets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{rules, schema};

/// One item of `imagePrePullOverriders`, in either spelling: wrapped, as the proposal's sample has it, or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::overrider_item()))]
pub struct OverriderItem {
    /// The wrapped spelling. If it is there, nothing may stand beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pre_pull_overrider: Option<Overrider>,

    /// The spelling without wrapper.
    #[serde(flatten)]
    pub unwrapped: Overrider,
}

impl OverriderItem {
    /// The overrider, however it is spelt.
    pub fn overrider(&self) -> &Overrider {
        self.image_pre_pull_overrider.as_ref().unwrap_or(&self.unwrapped)
    }
}

/// Which nodes, and what to change for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::overrider()))]
pub struct Overrider {
    /// A selector in one line: `key` (the label exists), `key=value`, `key!=value`, `key in (a, b)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub node_label: Option<String>,

    /// The same as a structure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,

    /// What to change on these nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overriders: Option<Overriders>,
}

/// Changes, applied in order, each to the result of the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overriders {
    /// Changes to `Registry`, `Repository` or `Tag` of every image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "image_overriders")]
    pub image_overriders: Vec<ComponentOverride>,

    /// Changes to `Namespace` or `SecretName` of every secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "secret_overriders")]
    pub secret_overriders: Vec<ComponentOverride>,
}

/// One change of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentOverride {
    /// The component.
    pub component: String,

    /// `add` appends text, `replace` sets, `remove` clears.
    pub operator: String,

    /// The text; not needed to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

fn image_overriders(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    component_overrides(&["Registry", "Repository", "Tag"])
}

fn secret_overriders(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    // The base proposal writes the second spelling of each, the sample the first.
    component_overrides(&["Namespace", "SecretName", "namespace", "secretName"])
}

fn component_overrides(components: &[&str]) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": {
            "type": "object",
            "required": ["component", "operator"],
            "properties": {
                "component": { "type": "string", "enum": components },
                "operator": { "type": "string", "enum": ["add", "remove", "replace"] },
                "value": { "type": "string", "maxLength": 520 },
            },
            "x-kubernetes-validations": rules::component_override(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::wrapped(json!({"imagePrePullOverrider": {"nodeLabel": "region=hangzhou"}}))]
    #[case::unwrapped(json!({"nodeLabel": "region=hangzhou"}))]
    fn both_spellings_mean_the_same(#[case] item: serde_json::Value) {
        let item: OverriderItem = serde_json::from_value(item).unwrap();
        assert_eq!(item.overrider().node_label.as_deref(), Some("region=hangzhou"));
    }
}
