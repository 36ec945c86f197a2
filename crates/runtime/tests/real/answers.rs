//! Registries that answer, but not with an image: what the runtime makes of it, and what we make of that.

use std::net::SocketAddr;

use larder_model::Reason;
use larder_runtime::PullRequest;
use larder_testkit::ContainerdVersion;
use rstest::rstest;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{Node, image};

/// A server that gives every request the same answer, until it is dropped.
struct OneAnswer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl OneAnswer {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, answer));
            }
        });
        Self { address, _tasks: tasks }
    }
}

async fn serve(mut stream: TcpStream, answer: &str) {
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read).lines();
    // A request without body ends with an empty line.
    while let Ok(Some(line)) = lines.next_line().await {
        if line.is_empty() && write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

macro_rules! answer {
    ($status:literal) => {
        concat!("HTTP/1.1 ", $status, "\r\nContent-Length: 0\r\n\r\n")
    };
}

#[rstest]
#[case::limit(answer!("429 Too Many Requests"), Reason::RateLimited)]
#[case::forbidden(answer!("403 Forbidden"), Reason::AuthDenied)]
#[case::unauthorized(answer!("401 Unauthorized"), Reason::AuthDenied)]
#[case::missing(answer!("404 Not Found"), Reason::NotFound)]
#[case::broken(answer!("500 Internal Server Error"), Reason::Unreachable)]
#[case::behind_a_broken_proxy(answer!("502 Bad Gateway"), Reason::Unreachable)]
#[case::overloaded(answer!("503 Service Unavailable"), Reason::Unreachable)]
#[case::late(answer!("504 Gateway Timeout"), Reason::Unreachable)]
#[tokio::test]
async fn answers_have_their_reasons(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[case] answer: &'static str,
    #[case] expected: Reason,
) {
    let server = OneAnswer::start(answer).await;
    let node = Node::start(version).await;
    // A current containerd would try TLS first, even on this very machine.
    let hosts = format!("server = \"http://{}\"\n", server.address);
    node.containerd.set_hosts(&server.address.to_string(), &hosts).unwrap();
    let name = image(&format!("{}/not-found/unauthorized:forbidden", server.address));
    let error = node.runtime.pull(&PullRequest::new(name)).await.unwrap_err();
    assert_eq!(error.reason(), expected, "{}", error.text());
}
