//! Two agents with the name of one node against a real API server.

use larder_runtime::fake::FakeRuntime;
use larder_testkit::wait_until;

use super::api::count_writes;
use super::scene::{Node, SOON};

/// The same node on another machine: it has the name, and its own folder with its own key.
fn second_machine(node: &Node) -> Node {
    Node {
        name: node.name.clone(),
        access: node.access.clone(),
        images: node.images.clone(),
        state: tempfile::tempdir().unwrap(),
    }
}

#[tokio::test]
async fn two_agents_of_one_name_do_not_write_in_a_loop() {
    let node = Node::new().await;
    let other = second_machine(&node);
    let (fake, other_fake) = (FakeRuntime::new(), FakeRuntime::new());
    let agent = node.fake(&fake);
    wait_until(SOON, "the first agent", async || node.get().await.status.is_some())
        .await
        .unwrap();
    let writes = count_writes(&node).await;
    let before = *writes.borrow();
    let second = other.fake(&other_fake);
    let told = async || {
        let about = node.get().await.status.and_then(|status| status.agent);
        about.is_some_and(|about| about.conflicts_with.is_some())
    };
    wait_until(SOON, "the conflict in the status", told).await.unwrap();
    // The other one sees that in turn, and says nothing for a while.
    let both = async || agent.conflicts() >= 1 && second.conflicts() >= 1;
    wait_until(SOON, "both agents to know", both).await.unwrap();
    let count = *writes.borrow() - before;
    assert!((2..=6).contains(&count), "{count} writes");

    // The machine that should not be there is switched off: the right one recovers.
    second.stop().await;
    wait_until(SOON, "the right agent", async || {
        let about = node.get().await.status.unwrap().agent.unwrap();
        about.public_key == Some(node.public_key()) && agent.health.not_ready().is_none()
    })
    .await
    .unwrap();
}
