//! Pins and second names.

use larder_model::Digest;
use larder_runtime::{OwnReference, PullRequest, Purpose, RuntimeError};
use larder_testkit::{ContainerdVersion, Registry, image::Recipe, wait_until};
use rstest::rstest;

use super::{DEADLINE, Node, image};

async fn is_pinned(node: &Node, name: &str) -> bool {
    node.runtime
        .status(&image(name))
        .await
        .unwrap()
        .is_some_and(|image| image.pinned)
}

#[tokio::test]
async fn a_pin_survives_a_re_pull_and_a_restart_and_goes_when_taken_back() {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 2, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let app = image(&pushed.reference);
    let mut node = Node::start(ContainerdVersion::V2).await;
    assert!(node.runtime.capabilities().await.unwrap().pin.is_yes());
    node.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();

    node.runtime.pin(&app).await.unwrap();
    assert!(is_pinned(&node, &pushed.reference).await);
    // Nobody who lists images sees a name that people did not give.
    let listed = node.runtime.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].tags, std::slice::from_ref(&app));

    node.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
    assert!(
        is_pinned(&node, &pushed.reference).await,
        "the re-pull took the pin away"
    );
    node.runtime.pin(&app).await.unwrap();

    node.containerd.restart().await.unwrap();
    wait_until(DEADLINE, "the pin after a restart", async || {
        is_pinned(&node, &pushed.reference).await
    })
    .await
    .unwrap();
    let own = OwnReference {
        purpose: Purpose::Pin,
        image: app.clone(),
        digest: Digest::parse(&pushed.digest).unwrap(),
    };
    assert_eq!(node.runtime.own_references().await.unwrap(), [own]);

    node.runtime.unpin(&app).await.unwrap();
    wait_until(DEADLINE, "the pin to go", async || {
        !is_pinned(&node, &pushed.reference).await
    })
    .await
    .unwrap();
    assert!(
        node.runtime.status(&app).await.unwrap().is_some(),
        "only the pin goes, not the image"
    );
    assert_eq!(node.runtime.own_references().await.unwrap(), []);
    node.runtime.unpin(&app).await.unwrap();
}

#[tokio::test]
async fn a_pin_follows_a_moved_tag() {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let old = registry
        .push(&Recipe::random(1, 1, 5000).build(), "app", "latest")
        .await
        .unwrap();
    let app = image(&old.reference);
    let node = Node::start(ContainerdVersion::V2).await;
    node.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
    node.runtime.pin(&app).await.unwrap();

    let new = registry
        .push(&Recipe::random(9, 1, 5000).build(), "app", "latest")
        .await
        .unwrap();
    assert_ne!(old.digest, new.digest);
    let pulled = node.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
    assert_eq!(pulled.digest.unwrap().to_string(), new.digest);
    wait_until(DEADLINE, "the new image to be pinned", async || {
        is_pinned(&node, &new.by_digest).await
    })
    .await
    .unwrap();
    wait_until(DEADLINE, "the old image to be free", async || {
        !is_pinned(&node, &old.by_digest).await
    })
    .await
    .unwrap();
    assert_eq!(node.runtime.own_references().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_old_containerd_says_that_it_knows_no_pins() {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let node = Node::start(ContainerdVersion::V1_6).await;
    node.runtime
        .pull(&PullRequest::new(image(&pushed.reference)))
        .await
        .unwrap();
    let capabilities = node.runtime.capabilities().await.unwrap();
    assert!(capabilities.pin.why_not().unwrap().contains("1.7.10"));
    let error = node.runtime.pin(&image(&pushed.reference)).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Unsupported { .. }), "{error:?}");
    assert_eq!(node.runtime.own_references().await.unwrap(), []);
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn an_alias_is_a_second_name_until_it_is_taken_back(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 5000).build(), "mirror/app", "v1")
        .await
        .unwrap();
    let (app, alias) = (image(&pushed.reference), image("registry.example.com/team/app:v1"));
    let mut node = Node::start(version).await;
    node.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();

    node.runtime.alias(&app, &alias).await.unwrap();
    node.runtime.alias(&app, &alias).await.unwrap();
    let there = node.runtime.status(&alias).await.unwrap().unwrap();
    assert!(there.answers_to(&alias) && there.answers_to(&app), "{there:?}");

    node.containerd.restart().await.unwrap();
    wait_until(DEADLINE, "the alias after a restart", async || {
        node.runtime.status(&alias).await.is_ok_and(|image| image.is_some())
    })
    .await
    .unwrap();
    let own = node.runtime.own_references().await.unwrap();
    assert_eq!(own.len(), 1);
    assert_eq!((&own[0].purpose, &own[0].image), (&Purpose::Alias(alias.clone()), &app));
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn names_of_others_stay_as_they_are(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let ours = registry
        .push(&Recipe::random(1, 1, 5000).build(), "ours", "v1")
        .await
        .unwrap();
    let theirs = registry
        .push(&Recipe::random(5, 1, 5000).build(), "theirs", "v1")
        .await
        .unwrap();
    let (app, foreign) = (image(&ours.reference), image(&theirs.reference));
    let node = Node::start(version).await;
    for name in [&app, &foreign] {
        node.runtime.pull(&PullRequest::new(name.clone())).await.unwrap();
    }
    let before = node.runtime.status(&foreign).await.unwrap();

    let error = node.runtime.alias(&app, &foreign).await.unwrap_err();
    assert!(matches!(error, RuntimeError::ForeignReference { .. }), "{error:?}");
    assert_eq!(node.runtime.status(&foreign).await.unwrap(), before);
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn what_is_not_there_gets_no_second_name(#[case] version: ContainerdVersion) {
    let node = Node::start(version).await;
    let (missing, alias) = (image("registry.example.com/nosuch:v1"), image("other.example.com/x:v1"));
    let error = node.runtime.alias(&missing, &alias).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Missing { .. }), "{error:?}");
    assert_eq!(node.runtime.status(&alias).await.unwrap(), None);
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn an_alias_that_somebody_pulled_for_himself_is_left_to_him(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let ours = registry
        .push(&Recipe::random(1, 1, 5000).build(), "ours", "v1")
        .await
        .unwrap();
    let theirs = registry
        .push(&Recipe::random(5, 1, 5000).build(), "theirs", "v1")
        .await
        .unwrap();
    let (app, name) = (image(&ours.reference), image(&theirs.reference));
    let node = Node::start(version).await;
    node.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
    node.runtime.alias(&app, &name).await.unwrap();

    // Somebody else, who knows nothing of aliases: another client of the same runtime.
    let kubelet =
        larder_runtime::cri::CriRuntime::new(&larder_runtime::RuntimeEndpoint::at(node.containerd.socket()), "/")
            .unwrap();
    let pulled = larder_runtime::ImageRuntime::pull(&kubelet, &PullRequest::new(name.clone()))
        .await
        .unwrap();

    assert_eq!(node.runtime.own_references().await.unwrap(), []);
    let error = node.runtime.alias(&app, &name).await.unwrap_err();
    assert!(matches!(error, RuntimeError::ForeignReference { .. }), "{error:?}");
    assert_eq!(node.runtime.status(&name).await.unwrap().unwrap().id, pulled.id);
}
