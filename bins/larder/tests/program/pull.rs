//! `larder pull`: one machine, no API.

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
