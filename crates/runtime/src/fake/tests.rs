use std::time::Duration;

use futures::FutureExt as _;
use larder_model::{ByteSize, Digest, Reason};

use super::*;
use crate::{Credential, Purpose};

fn image(text: &str) -> ImageRef {
    ImageRef::parse(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn pull_takes_its_time_and_progress_grows() {
    let fake = FakeRuntime::new();
    let nginx = image("nginx:1");
    fake.script(
        &nginx,
        Script {
            size: ByteSize(1000),
            ..Script::takes(Duration::from_secs(10))
        },
    );
    assert_eq!(fake.progress(&nginx).await.unwrap(), None);

    let request = PullRequest::new(nginx.clone());
    let mut pull = fake.pull(&request);
    assert!((&mut pull).now_or_never().is_none());
    tokio::time::advance(Duration::from_secs(4)).await;
    let progress = fake.progress(&nginx).await.unwrap().unwrap();
    assert_eq!((progress.done, progress.total), (ByteSize(400), ByteSize(1000)));
    assert_eq!(fake.status(&nginx).await.unwrap(), None);

    let began = Instant::now();
    let pulled = pull.await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(6));
    let there = fake.status(&nginx).await.unwrap().unwrap();
    assert_eq!(there.id, pulled.id);
    assert_eq!(there.digest_in(&nginx), pulled.digest);
    assert_eq!(fake.progress(&nginx).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_pull_cancels_it() {
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_secs(10)));
    let request = PullRequest::new(image("nginx:1"));
    let timed_out = tokio::time::timeout(Duration::from_secs(1), fake.pull(&request)).await;
    assert!(timed_out.is_err());
    assert_eq!(fake.running(), 0);
    assert_eq!(fake.calls().last(), Some(&Call::Cancelled(image("nginx:1"))));
    assert_eq!(fake.status(&image("nginx:1")).await.unwrap(), None);
}

#[tokio::test]
async fn failures_come_in_their_order_then_success() {
    let fake = FakeRuntime::new();
    let nginx = image("nginx:1");
    fake.script(&nginx, Script::fails([Reason::Dns, Reason::RateLimited]));
    let request = PullRequest::new(nginx);
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(fake.pull(&request).await.map_err(|error| error.reason()).err());
    }
    assert_eq!(seen, [Some(Reason::Dns), Some(Reason::RateLimited), None]);
}

#[tokio::test]
async fn only_the_right_login_may_pull() {
    let fake = FakeRuntime::new();
    let private = image("example.com/private:1");
    fake.script(
        &private,
        Script {
            login: Some(Credential::basic("robot", "right")),
            ..Script::default()
        },
    );
    let with = |password: &str| PullRequest {
        auth: Some(Credential::basic("robot", password)),
        ..PullRequest::new(private.clone())
    };
    let anonymous = fake.pull(&PullRequest::new(private.clone())).await;
    assert_eq!(anonymous.unwrap_err().reason(), Reason::AuthDenied);
    assert_eq!(
        fake.pull(&with("wrong")).await.unwrap_err().reason(),
        Reason::AuthDenied
    );
    fake.pull(&with("right")).await.unwrap();
    let marked = fake
        .pulls()
        .iter()
        .all(|pull| pull.annotations[MARKER_ANNOTATION.0] == MARKER_ANNOTATION.1);
    assert!(marked);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_goes_away_breaks_pulls_and_comes_back() {
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_secs(10)));
    let request = PullRequest::new(image("nginx:1"));
    let mut events = fake.events().await.unwrap();
    let mut pull = fake.pull(&request);
    assert!((&mut pull).now_or_never().is_none());
    fake.go_down();
    assert_eq!(pull.await.unwrap_err().reason(), Reason::RuntimeDown);
    assert_eq!(fake.list().await.unwrap_err().reason(), Reason::RuntimeDown);
    assert_eq!(events.next().await, None);
    fake.come_up();
    fake.pull(&request).await.unwrap();
}

#[tokio::test]
async fn eviction_takes_every_name_and_is_told() {
    let fake = FakeRuntime::new();
    let (nginx, alias) = (image("nginx:1"), image("example.com/nginx:1"));
    fake.put(&nginx);
    fake.alias(&nginx, &alias).await.unwrap();
    fake.pin(&nginx).await.unwrap();
    assert!(fake.status(&alias).await.unwrap().unwrap().pinned);

    let mut events = fake.events().await.unwrap();
    fake.evict(&nginx);
    let mut told = Vec::new();
    while let Some(Some(ImageEvent::Deleted(name))) = events.next().now_or_never() {
        told.push(name);
    }
    assert!(told.contains(&nginx) && told.contains(&alias), "{told:?}");
    assert_eq!(fake.own_references().await.unwrap(), []);
    assert_eq!(fake.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_foreign_name_is_not_overwritten() {
    let fake = FakeRuntime::new();
    let (ours, foreign) = (image("nginx:1"), image("example.com/nginx:1"));
    fake.put(&ours);
    fake.put(&foreign);
    let before = fake.status(&foreign).await.unwrap();
    assert!(matches!(
        fake.alias(&ours, &foreign).await,
        Err(RuntimeError::ForeignReference { .. })
    ));
    assert_eq!(fake.status(&foreign).await.unwrap(), before);
}

#[tokio::test]
async fn a_pin_follows_a_moved_tag_when_it_is_renewed() {
    let fake = FakeRuntime::new();
    let nginx = image("nginx:1");
    let digest = |fill: char| Digest::sha256(&fill.to_string().repeat(64)).unwrap();
    for fill in ['a', 'b'] {
        fake.script(
            &nginx,
            Script {
                digest: Some(digest(fill)),
                ..Script::default()
            },
        );
        fake.put(&nginx);
        fake.pin(&nginx).await.unwrap();
    }
    let own = fake.own_references().await.unwrap();
    assert_eq!(own.len(), 1);
    assert_eq!((&own[0].purpose, &own[0].digest), (&Purpose::Pin, &digest('b')));
}

#[tokio::test]
async fn what_it_says_it_cannot_do_it_refuses() {
    let fake = FakeRuntime::new();
    fake.put(&image("nginx:1"));
    fake.set_capabilities(Capabilities::none("too old"));
    let refused = fake.pin(&image("nginx:1")).await.unwrap_err();
    assert_eq!(refused.text(), "cannot pin nginx:1: too old");
}

#[tokio::test]
async fn blobs_are_told_once_they_are_scripted() {
    let fake: Arc<dyn ImageRuntime> = {
        let fake = FakeRuntime::new();
        assert_eq!(fake.held_blobs(&[]).await.unwrap(), None);
        let held = Digest::sha256(&"a".repeat(64)).unwrap();
        fake.set_blobs([held]);
        Arc::new(fake)
    };
    let [held, other] = ["a", "b"].map(|digit| Digest::sha256(&digit.repeat(64)).unwrap());
    let answer = fake.held_blobs(&[held.clone(), other]).await.unwrap();
    assert_eq!(answer, Some([held].into()));
}
