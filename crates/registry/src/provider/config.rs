//! `CredentialProviderConfig`: which plugins there are and which images each one knows.

use std::time::Duration;

use larder_model::ImageRef;
use serde::Deserialize;
use serde_json::Value;

use super::duration;
use crate::keyring::{ImagePattern, PatternError};

const CONFIG_GROUP: &str = "kubelet.config.k8s.io/";
const PLUGIN_GROUP: &str = "credentialprovider.kubelet.k8s.io/";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// The plugins of a configuration that can be used, and what is wrong with the others.
#[derive(Debug, Default)]
pub struct ProviderConfig {
    /// In the order of the file.
    pub plugins: Vec<PluginConfig>,
    /// One error for each plugin that was left out.
    pub broken: Vec<ConfigError>,
}

/// One plugin.
#[derive(Debug, Clone)]
pub struct PluginConfig {
    /// Its name, which is also the name of its program.
    pub name: String,
    pub(super) match_images: Vec<ImagePattern>,
    pub(super) default_cache_duration: Duration,
    pub(super) api_version: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

/// Why a configuration, or one plugin in it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Neither YAML nor JSON of the right shape.
    #[error("the credential provider configuration cannot be read: {0}")]
    Unreadable(String),
    /// Another kind of object.
    #[error(
        "the credential provider configuration has apiVersion `{api_version}` and kind `{kind}`; it must be kubelet.config.k8s.io/v1 and CredentialProviderConfig"
    )]
    WrongKind {
        /// As found.
        api_version: String,
        /// As found.
        kind: String,
    },
    /// A plugin's fields do not have the right types.
    #[error("credential provider number {number} cannot be read: {problem}")]
    Shape {
        /// Counted from 1.
        number: usize,
        /// Which field.
        problem: String,
    },
    /// The name would lead outside the plugin directory.
    #[error("`{0}` is not the name of a credential provider; it must be a plain file name without spaces")]
    Name(String),
    /// Two plugins share one name.
    #[error("the credential provider `{0}` is listed twice")]
    Duplicate(String),
    /// A plugin for no image.
    #[error("the credential provider `{0}` has no matchImages; list the registries that it knows")]
    NoImages(String),
    /// A pattern that can never fit.
    #[error("the credential provider `{name}` has a broken entry in matchImages")]
    Pattern {
        /// The plugin.
        name: String,
        /// What is wrong.
        #[source]
        source: PatternError,
    },
    /// `defaultCacheDuration` is missing or nonsense.
    #[error("the credential provider `{name}` has defaultCacheDuration `{found}`; write a duration such as 12h or 0s")]
    CacheDuration {
        /// The plugin.
        name: String,
        /// As found.
        found: String,
    },
    /// A protocol version nobody speaks.
    #[error("the credential provider `{name}` has apiVersion `{found}`; use credentialprovider.kubelet.k8s.io/v1")]
    ApiVersion {
        /// The plugin.
        name: String,
        /// As found.
        found: String,
    },
    /// The plugin wants the token of a pod's service account.
    #[error(
        "the credential provider `{0}` has tokenAttributes; there is no pod, and so no service account, behind an image that is fetched ahead"
    )]
    TokenAttributes(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawConfig {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    providers: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPlugin {
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    #[serde(default)]
    default_cache_duration: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<RawEnv>>,
    #[serde(default)]
    token_attributes: Option<Value>,
}

#[derive(Deserialize)]
struct RawEnv {
    name: String,
    #[serde(default)]
    value: String,
}

impl ProviderConfig {
    /// Reads YAML or JSON. A broken plugin is left out and reported; a file of another kind is refused.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let raw: RawConfig = serde_saphyr::from_str(text).map_err(|error| ConfigError::Unreadable(place_of(&error)))?;
        if !has_version(&raw.api_version, CONFIG_GROUP) || raw.kind != "CredentialProviderConfig" {
            return Err(ConfigError::WrongKind {
                api_version: raw.api_version,
                kind: raw.kind,
            });
        }
        let mut config = Self::default();
        for (index, value) in raw.providers.into_iter().enumerate() {
            let plugin = serde_json::from_value(value)
                .map_err(|error| ConfigError::Shape {
                    number: index + 1,
                    problem: without_values(&error),
                })
                .and_then(checked);
            match plugin {
                Ok(plugin) if config.plugins.iter().any(|known| known.name == plugin.name) => {
                    config.broken.push(ConfigError::Duplicate(plugin.name));
                }
                Ok(plugin) => config.plugins.push(plugin),
                Err(error) => config.broken.push(error),
            }
        }
        Ok(config)
    }
}

impl PluginConfig {
    /// Whether the plugin says that it knows credentials for the image.
    pub fn matches(&self, image: &ImageRef) -> bool {
        let mut patterns = self.match_images.iter();
        patterns.any(|pattern| pattern.matches(image.registry(), image.repository()))
    }
}

fn checked(raw: RawPlugin) -> Result<PluginConfig, ConfigError> {
    let name = raw.name;
    let bad_name = name.is_empty() || matches!(&*name, "." | "..");
    if bad_name || name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
        return Err(ConfigError::Name(name));
    }
    if raw.token_attributes.is_some() {
        return Err(ConfigError::TokenAttributes(name));
    }
    if raw.match_images.is_empty() {
        return Err(ConfigError::NoImages(name));
    }
    let patterns: Result<Vec<_>, _> = raw.match_images.iter().map(|text| ImagePattern::parse(text)).collect();
    let match_images = patterns.map_err(|source| ConfigError::Pattern {
        name: name.clone(),
        source,
    })?;
    let Some(default_cache_duration) = duration::parse(&raw.default_cache_duration) else {
        return Err(ConfigError::CacheDuration {
            name,
            found: raw.default_cache_duration,
        });
    };
    if !has_version(&raw.api_version, PLUGIN_GROUP) {
        return Err(ConfigError::ApiVersion {
            name,
            found: raw.api_version,
        });
    }
    Ok(PluginConfig {
        name,
        match_images,
        default_cache_duration,
        api_version: raw.api_version,
        args: raw.args.unwrap_or_default(),
        env: raw
            .env
            .unwrap_or_default()
            .into_iter()
            .map(|env| (env.name, env.value))
            .collect(),
    })
}

/// Where the parser stopped. Its own words quote the lines around, and a plugin's arguments and variables may be secret.
fn place_of(error: &serde_saphyr::Error) -> String {
    match error.location() {
        Some(place) => format!(
            "it is not valid YAML, or has another shape, at line {}, column {}",
            place.line(),
            place.column()
        ),
        None => "it is not valid YAML, or has another shape".to_owned(),
    }
}

/// What was expected, without what was found, which may be secret.
fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("a field has a value of the wrong type, where it must be {expected}"),
        None => text,
    }
}

fn has_version(api_version: &str, group: &str) -> bool {
    api_version
        .strip_prefix(group)
        .is_some_and(|version| VERSIONS.contains(&version))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n";

    #[rstest]
    #[case::syntax("- name: x\n  env:\n  - name: TOKEN\n    value: hunter2\n  bad: [\n", "line 8")]
    #[case::shape("hunter2\n", "line 4")]
    #[case::type_of_a_field("- name: x\n  env: TOKEN=hunter2\n", "must be a sequence")]
    #[case::tricky_value("- name: x\n  env: \"hunter2, expected hunter2\"\n", "must be a sequence")]
    #[case::missing_field("- args: [hunter2]\n", "missing field `name`")]
    fn no_value_of_a_broken_file_is_told(#[case] providers: &str, #[case] told: &str) {
        let text = match ProviderConfig::parse(&format!("{HEAD}{providers}")) {
            Ok(config) => config.broken[0].to_string(),
            Err(error) => error.to_string(),
        };
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains(told), "{text}");
    }
}
