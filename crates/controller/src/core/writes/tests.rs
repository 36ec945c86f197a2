//! Calls that end as no call should.

use std::convert::Infallible;

use kube::client::Body;
use larder_planner::NodeKey;

use super::*;

/// A client whose every request panics.
fn broken() -> Client {
    Client::new(tower::service_fn(|_: http::Request<Body>| async { bug() }), "default")
}

fn bug() -> Result<http::Response<Body>, Infallible> {
    panic!("a bug in a call")
}

#[tokio::test]
async fn a_call_that_panics_finishes_and_gives_its_room_back() {
    let mut writes = Writes::new(broken(), "agent".to_owned(), Metrics::default());
    for number in 0..2 * CallClass::Node.max_in_flight() {
        assert!(writes.has_room(CallClass::Node), "call {number}");
        let node = NodeKey::from(format!("node-{number}"));
        writes.send(Request::Node(node.clone(), NodeWrite::Read));
        match writes.finished().await {
            Some(FinishedCall::Node(finished, NodeWriteResult::Unknown)) => assert_eq!(finished, node),
            _ => panic!("the engine waits for a result"),
        }
    }
    let secret = SecretRef {
        namespace: "team".into(),
        name: "pull".into(),
    };
    writes.send(Request::Secret(secret));
    let finished = writes.finished().await;
    assert!(matches!(finished, Some(FinishedCall::Secret(_, SecretRead::Failed))));
}
