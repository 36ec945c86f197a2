//! Registries that send something else than was asked for, while layers are fetched into real containerds: no wrong blob
//! gets into the store, and a pull that cannot succeed ends with a reason.

use larder_model::Reason;
use larder_runtime::{FetchPath, PullRequest};
use larder_testkit::{
    Containerd, ContainerdOptions, ContainerdVersion,
    image::{Compression, Image, Layer, Recipe},
};
use rstest::rstest;
use sha2::{Digest as _, Sha256};

use super::{
    MIB, Node, image,
    stub::{ENDLESS, Sent, Stub, answer},
};

/// What is wrong with the answers to requests for layers.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The layer is said to be, and is, a byte longer.
    Longer,
    /// It breaks off a byte before its end, and is said to be that long.
    Shorter,
    /// The bytes of one range are others.
    WrongRange,
    /// The body goes on behind the bytes that were asked for, for ever.
    Endless,
    /// All of the layer, whatever was asked for.
    Whole,
    /// Ranges are refused.
    NoRanges,
    /// Everything is refused as a range that does not exist.
    NothingSatisfiable,
    /// The layer is always somewhere else.
    RedirectLoop,
}

/// The byte that is wrong, in a part of the layer that is not asked for first.
const WRONG_BYTE: usize = 5 * MIB;

/// Layers whose bytes are text, which the stand-in for a registry sends.
fn text_image() -> Image {
    let layer = |path: &str| {
        let content: Vec<u8> = (0..6 * MIB)
            .map(|place| b'a' + u8::try_from(place / 7 % 26).unwrap())
            .collect();
        Layer::file(path, 0o644, content).compression(Compression::None)
    };
    Recipe::new([layer("one"), layer("two")]).build()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl Fault {
    fn answer(self, layer: &str, sent: &Sent) -> String {
        let size = layer.len();
        let changed = match self {
            Self::Longer => format!("{layer}x"),
            Self::Shorter => layer[..size - 1].to_owned(),
            Self::WrongRange => format!("{}?{}", &layer[..WRONG_BYTE], &layer[WRONG_BYTE + 1..]),
            _ => layer.to_owned(),
        };
        let length = changed.len();
        match (self, sent.range) {
            (Self::RedirectLoop, _) => {
                let path = sent.line.split(' ').nth(1).unwrap_or_default();
                answer("307 Temporary Redirect", &[("Location", path)], "")
            }
            (Self::NothingSatisfiable, _) | (Self::NoRanges, Some(_)) => answer(
                "416 Range Not Satisfiable",
                &[("Content-Range", &format!("bytes */{size}"))],
                "",
            ),
            (Self::Endless, range) => {
                let (first, last) = range.unwrap_or_default();
                let last = last.unwrap_or(size - 1);
                let (name, value) = ENDLESS;
                let endless = format!("{name}: {value}");
                let body = &changed[first..=last];
                // Without a length it lasts as long as the connection.
                format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{size}\r\n{endless}\r\n\r\n{body}"
                )
            }
            (Self::Whole | Self::NoRanges, _) | (_, None) => answer("200 OK", &[], &changed),
            (_, Some((first, last))) => {
                let last = last.unwrap_or(length - 1).min(length - 1);
                let range = format!("bytes {first}-{last}/{length}");
                let headers = [("Content-Range", &*range)];
                answer("206 Partial Content", &headers, &changed[first.min(last)..=last])
            }
        }
    }
}

/// A registry with this image alone.
async fn serve(built: &Image, fault: Fault) -> Stub {
    let manifest = text(built.manifest().bytes());
    let digest = built.manifest().digest().to_owned();
    let kind = built.manifest().media_type();
    let config = (built.config().digest().to_owned(), text(built.config().bytes()));
    let layers: Vec<(String, String)> = built
        .layers()
        .iter()
        .map(|layer| (layer.digest().to_owned(), text(layer.bytes())))
        .collect();
    Stub::start("127.0.0.1", move |sent: &Sent| {
        let headers = [("Content-Type", kind), ("Docker-Content-Digest", &*digest)];
        if sent.line.contains("/manifests/") {
            let whole = answer("200 OK", &headers, &manifest);
            let body = if sent.line.starts_with("HEAD") {
                manifest.len()
            } else {
                0
            };
            return whole[..whole.len() - body].to_owned();
        }
        if sent.line.contains(&config.0) {
            return answer("200 OK", &[], &config.1);
        }
        let layer = layers.iter().find(|(digest, _)| sent.line.contains(digest));
        match layer {
            Some((_, layer)) => fault.answer(layer, sent),
            None => answer("404 Not Found", &[], ""),
        }
    })
    .await
}

/// Which of the image's layers are in the store. Each has the bytes that it should have.
async fn layers_in_store(containerd: &Containerd, built: &Image) -> usize {
    let mut there = 0;
    for layer in built.layers() {
        let output = containerd.ctr(["content", "get", layer.digest()]).await.unwrap();
        if !output.status.success() {
            continue;
        }
        assert_eq!(
            Sha256::digest(&output.stdout),
            Sha256::digest(layer.bytes()),
            "{}",
            layer.digest()
        );
        there += 1;
    }
    there
}

#[rstest]
#[case::endless(Fault::Endless)]
#[case::whole_blob_for_each_range(Fault::Whole)]
#[case::no_ranges(Fault::NoRanges)]
#[tokio::test]
async fn a_registry_that_answers_oddly_but_has_the_bytes_is_fetched_from(
    #[values(ContainerdVersion::V1_7, ContainerdVersion::V2)] version: ContainerdVersion,
    #[case] fault: Fault,
) {
    let built = text_image();
    let registry = serve(&built, fault).await;
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let host = registry.address.to_string();
    let request = PullRequest::new(image(&format!("{host}/app:v1")));
    let pulled = node.runtime.pull(&request).await.unwrap();
    assert_eq!(pulled.path, FetchPath::Fetcher([host].into()));
    assert_eq!(layers_in_store(&node.containerd, &built).await, built.layers().len());
}

#[rstest]
#[case::longer(Fault::Longer, Reason::InvalidImage)]
// A blob that ends too early looks like a broken connection.
#[case::shorter(Fault::Shorter, Reason::Unreachable)]
#[case::wrong_bytes_in_one_range(Fault::WrongRange, Reason::InvalidImage)]
#[case::nothing_satisfiable(Fault::NothingSatisfiable, Reason::Internal)]
#[case::redirect_loop(Fault::RedirectLoop, Reason::Unreachable)]
#[tokio::test]
async fn a_registry_that_has_other_bytes_brings_no_blob_and_a_reason(
    #[values(ContainerdVersion::V1_7, ContainerdVersion::V2)] version: ContainerdVersion,
    #[case] fault: Fault,
    #[case] reason: Reason,
) {
    let built = text_image();
    let registry = serve(&built, fault).await;
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let request = PullRequest::new(image(&format!("{}/app:v1", registry.address)));
    let error = node.runtime.pull(&request).await.unwrap_err();
    assert_eq!(error.reason(), reason, "{}", error.text());
    assert_eq!(layers_in_store(&node.containerd, &built).await, 0);
    assert!(node.runtime.status(&request.image).await.unwrap().is_none());
}
