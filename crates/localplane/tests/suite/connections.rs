//! Clients that take connections and do not use them.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use larder_localplane::{Config, Limits, Listening, Localplane, Tokens};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use crate::network::client;

/// Far beyond what anything here takes, also while the machine compiles.
const LONG: Duration = Duration::from_secs(30);

async fn listen(limits: Limits) -> (Localplane, Listening) {
    let mut config = Config::new(larder_api::crds());
    config.limits = limits;
    let plane = Localplane::start(config).await.unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let listening = plane.listen(address, Tokens::admin("right".into())).await.unwrap();
    (plane, listening)
}

/// A connection that speaks HTTP/1.
async fn connect(listening: &Listening) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(listening.certificate().as_bytes()).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(listening.address()).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

/// Whether the server closes the connection within the time.
async fn closes(stream: &mut (impl AsyncReadExt + Unpin), within: Duration) -> bool {
    let mut rest = Vec::new();
    // A connection that is cut off ends in an error.
    timeout(within, stream.read_to_end(&mut rest)).await.is_ok()
}

async fn is_served(client: Client) {
    let namespaces: Api<Namespace> = Api::all(client);
    let listed = timeout(LONG, namespaces.list(&ListParams::default())).await;
    assert!(!listed.expect("an answer").expect("a list").items.is_empty());
}

#[tokio::test]
async fn idle_connections_without_a_token_keep_nobody_out() {
    let limits = Limits {
        unauthenticated: 8,
        handshake: LONG,
        authentication: LONG,
        ..Limits::default()
    };
    let (_plane, listening) = listen(limits).await;
    let first = client(&listening, "right").await;
    is_served(first.clone()).await;
    let mut silent = Vec::new();
    let mut idle = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(listening.address()).await.unwrap());
        idle.push(connect(&listening).await);
    }
    is_served(client(&listening, "right").await).await;
    is_served(first).await;
    assert!(closes(&mut silent[0], LONG).await);
    assert!(closes(&mut idle[0], LONG).await);
}

#[tokio::test]
async fn a_connection_without_a_token_ends_in_time_however_it_is_used() {
    let limits = Limits {
        handshake: Duration::from_millis(300),
        authentication: Duration::from_millis(600),
        ..Limits::default()
    };
    let (_plane, listening) = listen(limits).await;
    let mut silent = TcpStream::connect(listening.address()).await.unwrap();
    assert!(closes(&mut silent, LONG).await, "without a handshake");

    let mut idle = connect(&listening).await;
    assert!(closes(&mut idle, LONG).await, "without a request");

    let mut stream = connect(&listening).await;
    stream.write_all(b"GET /api HTTP/1.1\r\n").await.unwrap();
    let start = Instant::now();
    let mut ended = false;
    while !ended && start.elapsed() < LONG {
        ended = stream.write_all(b"a: b\r\n").await.is_err() || closes(&mut stream, Duration::from_millis(50)).await;
    }
    assert!(ended, "with slow headers");

    let mut stream = connect(&listening).await;
    let head =
        b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\nauthorization: Bearer wrong\r\ncontent-length: 9999\r\n\r\n";
    stream.write_all(head).await.unwrap();
    assert!(closes(&mut stream, LONG).await, "with a slow body");
}

#[tokio::test]
async fn a_connection_with_a_token_stays_while_it_is_used() {
    let limits = Limits {
        authentication: Duration::from_millis(500),
        idle: Duration::from_millis(500),
        ..Limits::default()
    };
    let (_plane, listening) = listen(limits).await;
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer right\r\n\r\n");

    let mut watching = connect(&listening).await;
    let watch = request("/api/v1/namespaces?watch=1&allowWatchBookmarks=true");
    watching.write_all(watch.as_bytes()).await.unwrap();
    assert!(!closes(&mut watching, Duration::from_secs(2)).await, "a quiet watch");

    let mut used = connect(&listening).await;
    for _ in 0..5 {
        used.write_all(request("/version").as_bytes()).await.unwrap();
        let mut buffer = [0; 4096];
        assert!(0 < used.read(&mut buffer).await.unwrap());
        sleep(Duration::from_millis(200)).await;
    }
    assert!(closes(&mut used, LONG).await, "an idle connection");
}

#[tokio::test]
async fn a_connection_too_many_is_told_so() {
    let limits = Limits {
        authenticated: 1,
        ..Limits::default()
    };
    let (_plane, listening) = listen(limits).await;
    let first = client(&listening, "right").await;
    is_served(first.clone()).await;
    let mut second = connect(&listening).await;
    second
        .write_all(b"GET /api HTTP/1.1\r\nhost: x\r\nauthorization: Bearer right\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    timeout(LONG, second.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    is_served(first).await;
}
