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
async fn a_call_that_panics_is_answered_and_gives_its_room_back() {
    let mut writes = Writes::new(broken(), Metrics::default());
    for number in 0..2 * ROOM[Request::NODE] {
        assert!(writes.has_room(Request::NODE), "call {number}");
        let node = NodeKey::from(format!("node-{number}"));
        writes.send(Request::Node(node.clone(), NodeAction::Look));
        match writes.answered().await {
            Some(Answer::Node(answered, NodeAnswer::Unknown)) => assert_eq!(answered, node),
            _ => panic!("whoever asked waits for an answer"),
        }
    }
    let key = SecretKey {
        namespace: "team".into(),
        name: "pull".into(),
    };
    writes.send(Request::Secret(key));
    let answer = writes.answered().await;
    assert!(matches!(answer, Some(Answer::Secret(_, SecretAnswer::Failed))));
}
