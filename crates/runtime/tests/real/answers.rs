//! Registries that answer, but not with an image: what the runtime makes of it, and what we make of that.

use larder_model::Reason;
use larder_runtime::PullRequest;
use larder_testkit::ContainerdVersion;
use rstest::rstest;

use super::{
    Node, image,
    stub::{Stub, answer},
};

#[rstest]
#[case::limit("429 Too Many Requests", Reason::RateLimited)]
#[case::forbidden("403 Forbidden", Reason::AuthDenied)]
#[case::unauthorized("401 Unauthorized", Reason::AuthDenied)]
#[case::missing("404 Not Found", Reason::NotFound)]
#[case::broken("500 Internal Server Error", Reason::Unreachable)]
#[case::behind_a_broken_proxy("502 Bad Gateway", Reason::Unreachable)]
#[case::overloaded("503 Service Unavailable", Reason::Unreachable)]
#[case::late("504 Gateway Timeout", Reason::Unreachable)]
#[tokio::test]
async fn answers_have_their_reasons(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[case] status: &'static str,
    #[case] expected: Reason,
) {
    let server = Stub::start("127.0.0.1", |_| answer(status, &[], "")).await;
    let node = Node::start(version).await;
    // A current containerd would try TLS first, even on this very machine.
    let hosts = format!("server = \"http://{}\"\n", server.address);
    node.containerd.set_hosts(&server.address.to_string(), &hosts).unwrap();
    let name = image(&format!("{}/not-found/unauthorized:forbidden", server.address));
    let error = node.runtime.pull(&PullRequest::new(name)).await.unwrap_err();
    assert_eq!(error.reason(), expected, "{}", error.text());
}
