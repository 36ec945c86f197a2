//! Pins and second names: references of our own to images that CRI pulled.
//!
//! CRI strips the pinned label from a reference whenever it pulls that reference again, but leaves others alone. So a
//! pin is a reference of its own, under a name without tag or digest, which CRI honours and does not list. A second name
//! is a reference under that name. Both carry labels that say whose they are, what for, and what we last pointed them
//! to: a reference that somebody moved since is not ours any more and is left alone. They go by containerd's own delete,
//! never by CRI, which would remove the image under all its names.

use std::collections::HashMap;

use larder_model::{Digest, ImageRef};
use larder_runtime_proto::containerd::{services::images::v1::Image, types::Descriptor};

use super::{filter, services::Services};
use crate::{OwnReference, Purpose, RuntimeError, sha256::sha256_of};

/// Every pin is called this, with a hash of the image's name behind it.
const PIN_PREFIX: &str = "larder.local/pin/";

/// Label: `pin` or `alias`. Its presence makes a reference ours.
const PURPOSE: &str = "larder.local/purpose";
/// Label: the full name of the image that the reference was made of.
const IMAGE: &str = "larder.local/image";
/// Label: the digest we pointed the reference to.
const TARGET: &str = "larder.local/target";

const PIN: &str = "pin";
const ALIAS: &str = "alias";

/// CRI's label on images it lists; with it CRI takes our reference as it is.
const CRI_MANAGED: (&str, &str) = ("io.cri-containerd.image", "managed");
/// CRI's label on images that the kubelet must not remove.
const CRI_PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");

/// Whether a reference is one of our pins, which are no names that people use.
pub(super) fn is_pin(name: &str) -> bool {
    name.starts_with(PIN_PREFIX)
}

pub(super) struct References<'a> {
    services: &'a Services,
}

impl<'a> References<'a> {
    pub(super) fn new(services: &'a Services) -> Self {
        Self { services }
    }

    /// Pins what the image's name points to now; an older pin of it moves there.
    pub(super) async fn pin(&self, doing: &str, image: &ImageRef) -> Result<(), RuntimeError> {
        let target = self.target(doing, image).await?;
        self.put(doing, own(pin_name(image), PIN, image, target)).await
    }

    pub(super) async fn unpin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        self.take_back(&pin_name(image)).await
    }

    pub(super) async fn alias(&self, doing: &str, image: &ImageRef, name: &ImageRef) -> Result<(), RuntimeError> {
        let target = self.target(doing, image).await?;
        self.put(doing, own(name.canonical(), ALIAS, image, target)).await
    }

    /// Moves our pin and second names of an image to where its name points now.
    pub(super) async fn follow(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        let doing = format!("move own references of {image}");
        let ours = self
            .services
            .images_where(vec![filter::label_is(IMAGE, &image.canonical())])
            .await?;
        if ours.is_empty() {
            return Ok(());
        }
        let target = self.target(&doing, image).await?;
        for reference in ours.into_iter().filter(is_ours) {
            let purpose = reference.labels.get(PURPOSE).map_or(PIN, String::as_str).to_owned();
            self.put(&doing, own(reference.name, &purpose, image, target.clone()))
                .await?;
        }
        Ok(())
    }

    /// Everything that is ours.
    pub(super) async fn list(&self) -> Result<Vec<OwnReference>, RuntimeError> {
        let ours = self.services.images_where(vec![filter::label(PURPOSE)]).await?;
        Ok(ours
            .iter()
            .filter(|image| is_ours(image))
            .filter_map(own_reference)
            .collect())
    }

    async fn target(&self, doing: &str, image: &ImageRef) -> Result<Descriptor, RuntimeError> {
        let target = self.services.image_target(&image.canonical()).await?;
        target.ok_or_else(|| RuntimeError::Missing {
            doing: doing.to_owned(),
        })
    }

    /// Makes or moves a reference of ours. A foreign one that happens to point to the same image already does what it
    /// should and stays as it is; one that points elsewhere stays too, and that is an error.
    async fn put(&self, doing: &str, wanted: Image) -> Result<(), RuntimeError> {
        // A second round only when somebody made or deleted the reference between our look and our write.
        for _ in 0..2 {
            let done = match self.services.image(&wanted.name).await? {
                None => self.services.create_image(wanted.clone()).await?,
                Some(present) if is_ours(&present) => {
                    (digest_of(&present) == digest_of(&wanted) && present.labels == wanted.labels)
                        || self.services.update_image(wanted.clone()).await?
                }
                Some(foreign) if digest_of(&foreign) == digest_of(&wanted) => true,
                Some(_) => {
                    return Err(RuntimeError::ForeignReference {
                        doing: doing.to_owned(),
                    });
                }
            };
            if done {
                return Ok(());
            }
        }
        Err(RuntimeError::NotShown {
            doing: doing.to_owned(),
        })
    }

    async fn take_back(&self, name: &str) -> Result<(), RuntimeError> {
        match self.services.image(name).await? {
            Some(present) if is_ours(&present) => self.services.delete_image(name).await,
            _ => Ok(()),
        }
    }
}

fn own(name: String, purpose: &str, image: &ImageRef, target: Descriptor) -> Image {
    let mut labels: HashMap<String, String> = HashMap::new();
    let mut set = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    set(CRI_MANAGED.0, CRI_MANAGED.1);
    if purpose == PIN {
        set(CRI_PINNED.0, CRI_PINNED.1);
    }
    set(PURPOSE, purpose);
    set(IMAGE, &image.canonical());
    set(TARGET, &target.digest);
    Image {
        name,
        labels,
        target: Some(target),
        ..Image::default()
    }
}

/// The hash keeps the name short and valid whatever the image is called; the label has the name in full.
fn pin_name(image: &ImageRef) -> String {
    format!("{PIN_PREFIX}{}", sha256_of(image.canonical().as_bytes()).hex())
}

fn digest_of(image: &Image) -> Option<&str> {
    image.target.as_ref().map(|target| target.digest.as_str())
}

fn is_ours(image: &Image) -> bool {
    image.labels.contains_key(PURPOSE) && image.labels.get(TARGET).map(String::as_str) == digest_of(image)
}

fn own_reference(image: &Image) -> Option<OwnReference> {
    let purpose = match image.labels.get(PURPOSE)?.as_str() {
        PIN => Purpose::Pin,
        ALIAS => Purpose::Alias(ImageRef::parse(&image.name).ok()?),
        _ => return None,
    };
    Some(OwnReference {
        purpose,
        image: ImageRef::parse(image.labels.get(IMAGE)?).ok()?,
        digest: Digest::parse(digest_of(image)?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn image(text: &str) -> ImageRef {
        ImageRef::parse(text).unwrap()
    }

    fn target(digest: &str) -> Descriptor {
        Descriptor {
            digest: digest.to_owned(),
            ..Descriptor::default()
        }
    }

    #[test]
    fn pins_have_no_tag_so_that_cri_does_not_list_them() {
        let name = pin_name(&image("127.0.0.1:5000/App_x/y:V1".to_lowercase().as_str()));
        let path = name.strip_prefix("larder.local/pin/").unwrap();
        assert!(path.len() == 64 && path.chars().all(|character| character.is_ascii_hexdigit()));
        assert!(is_pin(&name));
    }

    #[test]
    fn what_we_write_we_recognise() {
        let alias = own(
            "docker.io/library/app:1".to_owned(),
            ALIAS,
            &image("mirror.example/app:1"),
            target(DIGEST),
        );
        assert!(is_ours(&alias));
        assert_eq!(
            own_reference(&alias).unwrap(),
            OwnReference {
                purpose: Purpose::Alias(image("app:1")),
                image: image("mirror.example/app:1"),
                digest: Digest::parse(DIGEST).unwrap(),
            }
        );
    }

    #[test]
    fn a_reference_that_somebody_moved_is_not_ours() {
        let mut alias = own(
            "docker.io/library/app:1".to_owned(),
            ALIAS,
            &image("mirror.example/app:1"),
            target(DIGEST),
        );
        alias.target = Some(target(&DIGEST.replace('a', "b")));
        assert!(!is_ours(&alias));
    }

    #[test]
    fn only_pins_carry_the_pinned_label() {
        let labels = |purpose| own(String::new(), purpose, &image("app:1"), target(DIGEST)).labels;
        assert!(labels(PIN).contains_key(CRI_PINNED.0));
        assert!(!labels(ALIAS).contains_key(CRI_PINNED.0));
    }
}
