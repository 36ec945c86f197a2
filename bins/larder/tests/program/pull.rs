//! `larder pull`: one machine, no API.

use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Containerd, ContainerdVersion, Link, Registry, Throttle};

use crate::larder::Larder;
use crate::up::Source;

#[tokio::test(flavor = "multi_thread")]
async fn an_image_into_a_folder() {
    let source = Source::start().await;
    let image = source.offer("app").await;
    source.walk();
    let larder = Larder::new();
    let said = larder.run(&["pull", &image, "--to", "images"]).await.well();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with(&format!("{image}: pulled, sha256:")), "{said}");
    assert!(last.ends_with(", 589.4 KiB"), "{said}");
    let index = std::fs::read_to_string(larder.home.path().join("images/index.json")).unwrap();
    assert!(index.contains(&image), "{index}");

    let again = larder.run(&["pull", &image, "--to", "images"]).await.well();
    assert!(again.contains(": is there already, sha256:"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_that_does_not_exist() {
    let source = Source::start().await;
    let image = source.offer("app").await;
    let missing = format!("{image}.2");
    let larder = Larder::new();
    let ended = larder
        .run(&["pull", &image, &missing, "--to", "images", "-o", "json"])
        .await;
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let images = answer["images"].as_array().unwrap();
    assert_eq!([&images[0]["phase"], &images[1]["phase"]], ["Succeeded", "Failed"]);
    assert_eq!(
        (&images[1]["reason"], &images[1]["attempts"]),
        (&"NotFound".into(), &1.into())
    );
    let sentence = ended.badly(1);
    assert!(
        sentence.starts_with(&format!("Failed to pull image reference \"{missing}\": ")),
        "{sentence}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_fetched_over_several_connections_where_that_is_asked_for() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(2 << 20));
    let built = Recipe::random(1, 1, 12 << 20).build();
    registry.push(&built, "app", "v1").await.unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let (image, socket) = (
        format!("{}/app:v1", line.host()),
        format!("unix://{}", containerd.socket().display()),
    );
    let before = line.connections();
    let larder = Larder::new();
    let pull = ["pull", &image, "--runtime-endpoint", &socket, "--fetch", "auto"];
    let said = larder.run(&pull).await.well();
    assert!(said.contains(": pulled, sha256:"), "{said}");
    // containerd alone would use one for the layer.
    let used = line.connections() - before;
    assert!(4 <= used, "{used} connections");
    let moved = line.bytes();
    assert!(moved * 100 <= built.content_size() * 105, "{moved} bytes");
}
