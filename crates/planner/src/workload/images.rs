//! The images that pods use: of containers of all sorts and of image volumes.

use k8s_openapi::api::core::v1::PodSpec;
use larder_model::{ImageRef, ImageRefError, Reference};

/// What Istio's templates say instead of an image; its webhook puts the image there.
const SET_LATER: [&str; 2] = ["", "auto"];

/// One image that a pod names.
#[derive(Debug)]
pub(super) enum PodImage<'a> {
    /// It has to be on the node.
    Needed {
        text: &'a str,
        image: ImageRef,
        /// The kubelet asks the registry each time, so the node should have what the registry has now.
        always: bool,
    },
    /// `imagePullPolicy: Never`: it comes onto the node in another way.
    NeverPulled(&'a str),
    /// Something else sets the image when the pod is created.
    SetLater,
    /// No image can have this name.
    Invalid(&'a str, ImageRefError),
}

/// All of them, in the order in which the kubelet needs them.
pub(super) fn of_pods(pods: &PodSpec) -> Vec<PodImage<'_>> {
    let volumes = pods.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref());
    let volumes = volumes.map(|volume| (volume.reference.as_deref(), volume.pull_policy.as_deref()));
    let containers = pods.init_containers.iter().flatten().chain(&pods.containers);
    let containers = containers.map(|one| (one.image.as_deref(), one.image_pull_policy.as_deref()));
    let ephemeral = pods.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|one| (one.image.as_deref(), one.image_pull_policy.as_deref()));
    volumes
        .chain(containers)
        .chain(ephemeral)
        .map(|(text, policy)| read(text.unwrap_or_default(), policy.unwrap_or_default()))
        .collect()
}

fn read<'a>(text: &'a str, policy: &str) -> PodImage<'a> {
    if SET_LATER.contains(&text) {
        return PodImage::SetLater;
    }
    match (ImageRef::parse(text), policy) {
        (Err(error), _) => PodImage::Invalid(text, error),
        (Ok(_), "Never") => PodImage::NeverPulled(text),
        (Ok(image), _) => PodImage::Needed {
            text,
            always: policy == "Always" || policy.is_empty() && is_latest(&image),
            image,
        },
    }
}

/// Kubernetes' default policy for the tag `latest`, which is also meant where no tag is given, is Always.
fn is_latest(image: &ImageRef) -> bool {
    matches!(image.reference(), Reference::Tag(tag) if tag.as_str() == "latest")
}
