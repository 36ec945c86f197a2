//! A board that boots in 1970 and learns the time in the middle of a pull.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use larder_agent::{Clock, RuntimeSource};
use larder_model::{Phase, Reason};
use larder_runtime::fake::{FakeRuntime, Script};
use larder_testkit::wait_until;

use super::scene::{Change, Node, SOON};

/// Seconds since 1970 that the wall clock shows.
fn settable() -> (Arc<AtomicI64>, Clock) {
    let shows = Arc::new(AtomicI64::new(7));
    let reads = Arc::clone(&shows);
    let clock = Clock::new("boot", Duration::from_secs(3), move || {
        Timestamp::from_second(reads.load(Ordering::Relaxed)).unwrap()
    });
    (shows, clock)
}

fn start(node: &Node, fake: &FakeRuntime, clock: Clock) -> super::scene::Agent {
    let change = Change {
        clock: Some(clock),
        ..Change::default()
    };
    node.start(RuntimeSource::Given(Arc::new(fake.clone())), change)
}

#[tokio::test]
async fn a_step_of_the_clock_in_mid_pull_ends_nothing() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_secs(3)));
    let (shows, clock) = settable();
    let _agent = start(&node, &fake, clock);
    let wanted = node
        .pull("app:1", |entry| {
            entry.pull_policy.active_deadline_seconds = Some(60);
            entry.pull_policy.timeout_seconds = 30;
        })
        .await;
    let pulling = node.until_phase(&wanted, Phase::Pulling).await;
    assert_eq!(pulling.start_time.unwrap().0, Timestamp::from_second(7).unwrap());
    let today = 1_800_000_000;
    shows.store(today, Ordering::Relaxed);
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.attempts),
        (Phase::Succeeded, Some(1)),
        "{status:?}"
    );
    assert_eq!(
        status.completion_time.unwrap().0,
        Timestamp::from_second(today).unwrap()
    );
}

#[tokio::test]
async fn a_deadline_counts_steady_seconds() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_hours(1)));
    let (shows, clock) = settable();
    let _agent = start(&node, &fake, clock);
    let wanted = node
        .pull("app:1", |entry| entry.pull_policy.active_deadline_seconds = Some(3))
        .await;
    node.until_phase(&wanted, Phase::Pulling).await;
    // Back to the beginning: a deadline by this clock would never come.
    shows.store(0, Ordering::Relaxed);
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::DeadlineExceeded))
    );
    wait_until(SOON, "the end of the pull", async || fake.running() == 0)
        .await
        .unwrap();
}
