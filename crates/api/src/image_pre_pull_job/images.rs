//! The images of an ImagePrePullJob: a text, or the parts of one.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// One item of `images`. The schema lets anything through (a CRD cannot say "string or object"), so a thing that is
/// neither is kept as it is: the controller refuses that job in its status, and no other job suffers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PrePullImage {
    /// A reference, as people write it.
    Reference(String),
    /// A reference in parts.
    Parts(ImageParts),
    /// Neither.
    Malformed(Value),
}

impl<'de> Deserialize<'de> for PrePullImage {
    /// By hand: serde would also read a list as the parts, by position.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::String(reference) => Self::Reference(reference),
            Value::Object(parts) => {
                let parts = Value::Object(parts);
                serde_json::from_value(parts.clone()).map_or(Self::Malformed(parts), Self::Parts)
            }
            other => Self::Malformed(other),
        })
    }
}

impl From<&str> for PrePullImage {
    fn from(reference: &str) -> Self {
        Self::Reference(reference.to_owned())
    }
}

/// An image in parts, as KubeEdge's proposal writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageParts {
    /// A label for people; it is not part of the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Host and port of the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,

    /// Path of the repository. The proposal's sample spells it `respo`.
    #[serde(default, alias = "respo", skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,

    /// A tag, a digest, or (as in the proposal's sample) the last part of the name with its tag: `example:v1.0.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,

    /// `namespace/name` of a docker-registry Secret for this image; wins over the job's `imageSecrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_secret: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::text(json!("nginx:1.25"), PrePullImage::Reference("nginx:1.25".into()))]
    #[case::the_proposals_sample(
        json!({"name": "image1", "registry": "harbor.docker.hub", "respo": "jili", "tag": "example:v1.0.0", "imageSecret": "default/secret"}),
        PrePullImage::Parts(ImageParts {
            name: Some("image1".into()),
            registry: Some("harbor.docker.hub".into()),
            repo: Some("jili".into()),
            tag: Some("example:v1.0.0".into()),
            image_secret: Some("default/secret".into()),
        })
    )]
    #[case::number(json!(7), PrePullImage::Malformed(json!(7)))]
    #[case::member_that_nobody_knows(json!({"repositry": "x"}), PrePullImage::Malformed(json!({"repositry": "x"})))]
    #[case::list(json!(["nginx"]), PrePullImage::Malformed(json!(["nginx"])))]
    #[case::member_of_another_type(json!({"tag": 1.25}), PrePullImage::Malformed(json!({"tag": 1.25})))]
    fn reads(#[case] json: Value, #[case] want: PrePullImage) {
        assert_eq!(serde_json::from_value::<PrePullImage>(json).unwrap(), want);
    }
}
