//! The images of a job: a text, or the parts of one, put together once. What cannot be put together refuses the job, with a
//! sentence that names the item.

use larder_api::image_pre_pull_job::{ImageParts, PrePullImage};
use larder_model::{Algorithm, ImageRef, ImageRefError};
use serde_json::Value;
use thiserror::Error;

use crate::secret::{SecretRef, SecretRefError};

/// Members that an image object may have.
const MEMBERS: [&str; 6] = ["name", "registry", "repo", "respo", "tag", "imageSecret"];

/// Docker Hub's old host name, which reads as the new one.
const DOCKER_HUB_OLD: &str = "index.docker.io";

/// One image of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobImage {
    /// The reference as the job says it, or as it is put together from parts.
    pub written: String,
    /// The same, understood.
    pub reference: ImageRef,
    /// Its own Secret, or the job's.
    pub secret: Option<SecretRef>,
}

/// What is wrong with a job's images.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImagesError {
    /// There are none.
    #[error("images is empty; name at least one image")]
    Empty,
    /// One item.
    #[error("images[{index}]: {problem}")]
    Item {
        /// Which, counted from 0.
        index: usize,
        /// What.
        problem: Problem,
    },
    /// The job's own Secret.
    #[error("imageSecrets: {0}")]
    JobSecret(SecretRefError),
}

/// What is wrong with one item.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Neither a text nor an object.
    #[error("{0} is neither a text nor an object; write a reference, or registry, repo and tag")]
    Kind(String),
    /// A member that means nothing.
    #[error("the member {0:?} is unknown; use name, registry, repo, tag and imageSecret")]
    Member(String),
    /// A member that is not a text.
    #[error("the member {0:?} is not a text; put its value in quotation marks")]
    MemberKind(String),
    /// No part tells the image's name.
    #[error("there is no repo, and the tag holds no name either; give repo")]
    NoName,
    /// The registry would be read as part of the name.
    #[error("{0:?} is not a registry host; write it with a dot or a port, as in registry.example:5000")]
    Registry(String),
    /// The reference.
    #[error("{written:?} is not an image reference: {error}")]
    Reference {
        /// As put together.
        written: String,
        /// Why.
        error: ImageRefError,
    },
    /// Its Secret.
    #[error("imageSecret: {0}")]
    Secret(SecretRefError),
}

/// Reads a job's images in their order, each with its own Secret or the job's.
pub fn job_images(images: &[PrePullImage], job_secret: Option<&str>) -> Result<Vec<JobImage>, ImagesError> {
    if images.is_empty() {
        return Err(ImagesError::Empty);
    }
    let job_secret = secret(job_secret).map_err(ImagesError::JobSecret)?;
    let read = |(index, image)| {
        let mut image = job_image(image).map_err(|problem| ImagesError::Item { index, problem })?;
        image.secret = image.secret.or_else(|| job_secret.clone());
        Ok(image)
    };
    images.iter().enumerate().map(read).collect()
}

fn job_image(image: &PrePullImage) -> Result<JobImage, Problem> {
    match image {
        PrePullImage::Reference(written) => understood(written.clone(), None),
        PrePullImage::Parts(parts) => {
            let image = understood(written(parts)?, part(parts.registry.as_deref()))?;
            let secret = secret(parts.image_secret.as_deref()).map_err(Problem::Secret)?;
            Ok(JobImage { secret, ..image })
        }
        PrePullImage::Malformed(value) => Err(malformed(value)),
    }
}

fn secret(text: Option<&str>) -> Result<Option<SecretRef>, SecretRefError> {
    part(text).map(SecretRef::parse).transpose()
}

/// An empty part counts as not given.
fn part(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn understood(written: String, registry: Option<&str>) -> Result<JobImage, Problem> {
    let reference = match ImageRef::parse(&written) {
        Ok(reference) => reference,
        Err(error) => {
            let written = written.chars().take(100).collect();
            return Err(Problem::Reference { written, error });
        }
    };
    let host = registry.map(|registry| registry.split_once('/').map_or(registry, |(host, _)| host));
    if let Some(host) = host
        && host != reference.registry()
        && host != DOCKER_HUB_OLD
    {
        return Err(Problem::Registry(host.chars().take(100).collect()));
    }
    Ok(JobImage {
        written,
        reference,
        secret: None,
    })
}

/// Puts the parts together. `tag` is a tag, a digest, both, or the last part of the name with its tag.
fn written(parts: &ImageParts) -> Result<String, Problem> {
    let (registry, repo) = (part(parts.registry.as_deref()), part(parts.repo.as_deref()));
    let (tag, digest) = match part(parts.tag.as_deref()) {
        Some(tag) if names_digest(tag) => (None, Some(tag)),
        Some(tag) => tag
            .split_once('@')
            .map_or((Some(tag), None), |(tag, digest)| (part(Some(tag)), Some(digest))),
        None => (None, None),
    };
    let name = tag.filter(|tag| tag.contains(':'));
    if repo.is_none() && name.is_none() {
        return Err(Problem::NoName);
    }
    let path: Vec<&str> = [registry, repo, name].into_iter().flatten().collect();
    let mut written = path.join("/");
    if let Some(tag) = tag.filter(|_| name.is_none()) {
        written = format!("{written}:{tag}");
    }
    if let Some(digest) = digest {
        written = format!("{written}@{digest}");
    }
    Ok(written)
}

/// Whether a text is a digest, or was meant to be one: a digest with a digit missing must not become an image called
/// `sha256`.
fn names_digest(text: &str) -> bool {
    let algorithm = text.split_once(':').map(|(algorithm, _)| algorithm);
    let known = [Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];
    algorithm.is_some_and(|name| known.iter().any(|algorithm| algorithm.as_str() == name))
}

fn malformed(value: &Value) -> Problem {
    let Value::Object(members) = value else {
        return Problem::Kind(value.to_string().chars().take(100).collect());
    };
    let unknown = members.keys().find(|member| !MEMBERS.contains(&member.as_str()));
    if let Some(member) = unknown {
        return Problem::Member(member.chars().take(100).collect());
    }
    let misfit = members.iter().find(|(_, value)| !value.is_string() && !value.is_null());
    // Two spellings of one member are the only way that is left to be malformed.
    Problem::MemberKind(misfit.map_or("repo", |(member, _)| member.as_str()).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    fn read(image: &Value, job_secret: Option<&str>) -> Result<JobImage, String> {
        let image: PrePullImage = serde_json::from_value(image.clone()).unwrap();
        let read = job_images(&[image], job_secret);
        read.map(|mut images| images.remove(0))
            .map_err(|error| error.to_string())
    }

    const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[rstest]
    #[case::text(json!("nginx"), "nginx")]
    #[case::the_proposals_sample(
        json!({"name": "image1", "registry": "harbor.docker.hub", "respo": "jili", "tag": "example:v1.0.0"}),
        "harbor.docker.hub/jili/example:v1.0.0"
    )]
    #[case::tag(json!({"registry": "r.example", "repo": "team/app", "tag": "1.0"}), "r.example/team/app:1.0")]
    #[case::no_tag(json!({"registry": "r.example:5000", "repo": "app"}), "r.example:5000/app")]
    #[case::no_registry(json!({"repo": "nginx", "tag": "1"}), "nginx:1")]
    #[case::empty_parts_are_not_given(json!({"registry": "", "repo": "nginx", "tag": ""}), "nginx")]
    #[case::name_in_the_tag_alone(json!({"registry": "r.example", "tag": "app:1"}), "r.example/app:1")]
    #[case::registry_with_a_path(json!({"registry": "r.example/team", "repo": "app"}), "r.example/team/app")]
    #[case::docker_hub_by_its_old_name(json!({"registry": "index.docker.io", "repo": "library/nginx"}), "index.docker.io/library/nginx")]
    #[case::digest(
        json!({"registry": "r.example", "repo": "app", "tag": DIGEST}),
        &format!("r.example/app@{DIGEST}")
    )]
    #[case::tag_and_digest(
        json!({"repo": "app", "tag": format!("1@{DIGEST}")}),
        &format!("app:1@{DIGEST}")
    )]
    #[case::name_tag_and_digest(
        json!({"repo": "team", "tag": format!("app:1@{DIGEST}")}),
        &format!("team/app:1@{DIGEST}")
    )]
    #[case::digest_behind_an_at_sign(json!({"repo": "app", "tag": format!("@{DIGEST}")}), &format!("app@{DIGEST}"))]
    fn puts_together(#[case] image: Value, #[case] want: &str) {
        let image = read(&image, None).unwrap();
        assert_eq!(image.written, want);
        assert_eq!(image.reference, ImageRef::parse(want).unwrap());
        assert_eq!(image.reference.reference().digest().is_some(), want.contains('@'));
    }

    #[rstest]
    #[case::number(json!(7), "images[0]: 7 is neither a text nor an object")]
    #[case::unknown_member(json!({"repositry": "x"}), "the member \"repositry\" is unknown")]
    #[case::number_as_tag(json!({"repo": "nginx", "tag": 1.25}), "the member \"tag\" is not a text")]
    #[case::no_name(json!({"registry": "r.example", "tag": "1"}), "give repo")]
    #[case::nothing(json!({}), "give repo")]
    #[case::registry_that_is_no_host(json!({"registry": "harbor", "repo": "app"}), "\"harbor\" is not a registry host")]
    #[case::scheme(json!({"registry": "https://r.example", "repo": "app"}), "is a URL")]
    #[case::short_digest(json!({"repo": "app", "tag": "sha256:abc"}), "is not an image reference")]
    #[case::capitals(json!("Nginx"), "images[0]: \"Nginx\" is not an image reference")]
    #[case::empty_text(json!(""), "is not an image reference")]
    #[case::secret(json!({"repo": "app", "imageSecret": "secret"}), "imageSecret: \"secret\" does not name a Secret")]
    fn refuses_with_a_sentence(#[case] image: Value, #[case] want: &str) {
        let refusal = read(&image, None).unwrap_err();
        assert!(refusal.contains(want), "{refusal}");
    }

    #[rstest]
    #[case::none(json!("nginx"), None, None)]
    #[case::of_the_job(json!("nginx"), Some("default/all"), Some("default/all"))]
    #[case::its_own_wins(json!({"repo": "nginx", "imageSecret": "team/own"}), Some("default/all"), Some("team/own"))]
    #[case::empty_is_not_given(json!({"repo": "nginx", "imageSecret": ""}), Some("default/all"), Some("default/all"))]
    #[case::empty_of_the_job(json!("nginx"), Some(""), None)]
    fn secrets(#[case] image: Value, #[case] job: Option<&str>, #[case] want: Option<&str>) {
        let secret = read(&image, job).unwrap().secret;
        assert_eq!(secret.map(|secret| secret.to_string()).as_deref(), want);
    }

    #[test]
    fn the_item_is_named_and_a_bad_secret_of_the_job_too() {
        let images = ["nginx".into(), PrePullImage::Malformed(json!(true))];
        assert!(
            job_images(&images, None)
                .unwrap_err()
                .to_string()
                .starts_with("images[1]: true")
        );
        let error = job_images(&images[..1], Some("my-secret")).unwrap_err();
        assert!(error.to_string().starts_with("imageSecrets: "), "{error}");
    }

    proptest! {
        #[test]
        fn a_digest_is_never_lost(repo in "[a-z]{1,8}", tag in "[a-z0-9]{0,5}", name in proptest::option::of("[a-z]{1,5}:[a-z]{1,5}")) {
            let tag = name.unwrap_or(tag);
            let parts = ImageParts { repo: Some(repo), tag: Some(format!("{tag}@{DIGEST}")), ..ImageParts::default() };
            let image = &job_images(&[PrePullImage::Parts(parts)], None).unwrap()[0];
            prop_assert_eq!(image.reference.reference().digest().unwrap().to_string(), DIGEST);
        }
    }
}
