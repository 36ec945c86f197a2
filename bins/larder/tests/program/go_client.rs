//! A Go program with the defaults of client-go, against `larder up`.

use larder_testkit::go_client;

use crate::larder::{Larder, ended};
use crate::up::Up;

#[tokio::test]
async fn a_go_program_with_the_defaults_of_client_go_works() {
    let mut up = Up::start().await;
    let mut client = up.larder.command(go_client().unwrap());
    client.env("KUBECONFIG", "data/kubeconfig");
    let run = ended(client).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    let steps = [
        "typed informers",
        "informers of both versions",
        "leader election",
        "events",
        "patches",
    ];
    assert_eq!(
        run.stdout,
        steps.map(|step| format!("ok: {step}\n")).concat(),
        "{run:?}"
    );
    up.stop().await;
}

/// Otherwise the test above would test a program that nobody reads.
#[tokio::test]
async fn the_go_program_is_built_from_the_source_in_this_repository() {
    let larder = Larder::new();
    let mut client = larder.command(go_client().unwrap());
    client.arg("source");
    let source = include_str!("../../../../tests/go-client/main.go");
    assert!(
        ended(client).await.well() == source,
        "tests/go-client has changed: raise GO_CLIENT in tests/servers/setup and in crates/testkit/src/environment.rs, and run make setup"
    );
}
