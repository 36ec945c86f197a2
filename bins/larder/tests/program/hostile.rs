//! A registry and a node that answer with terminal escapes, bidirectional characters and line breaks: none of them reaches the
//! terminal, the pipe or the log.

use std::time::Duration;

use larder_testkit::wait_until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::larder::{Ended, ended};
use crate::terminal::in_terminal;
use crate::up::{ON_NODE_2, Up};

/// Hides text, sets the window's title, clears the screen, turns the text around, and pretends to be another row.
const HOSTILE: &str =
    "no\u{1b}[8m\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}dne\u{2066}\u{200f}\u{61c}\u{7f}\u{8}\r\nnode-9   Succeeded";

/// What must not be in the output; a line break may only be one of the program's own.
fn is_hostile(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[track_caller]
fn assert_clean(what: &str, text: &str) {
    assert!(!text.contains(is_hostile), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("node-9")), "{what}: {text}");
}

/// A registry that refuses everything with a hostile sentence.
struct HostileRegistry {
    host: String,
    task: JoinHandle<()>,
}

impl HostileRegistry {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(refuse(connection));
            }
        });
        Self { host, task }
    }
}

impl Drop for HostileRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one request.
async fn refuse(mut connection: TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let body = json!({ "errors": [{ "code": "MANIFEST_UNKNOWN", "message": HOSTILE }] }).to_string();
    let head = format!(
        "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).await.ok();
}

/// The output of a command in a pipe, as a table and as YAML, and in a terminal; its JSON is returned.
async fn assert_command_is_clean(up: &Up, command: &[&str]) -> Value {
    for more in [&[][..], &["-o", "yaml"]] {
        let Ended { stdout, stderr, .. } = up.run(&[command, more].concat()).await;
        assert_clean(&format!("{command:?} {more:?}"), &stdout);
        assert_clean(&format!("{command:?} {more:?}"), &stderr);
    }
    for columns in [80, 160] {
        let arguments = [command, &["--kubeconfig", "data/kubeconfig"]].concat();
        let raw = in_terminal(&up.larder, &arguments, columns).await.raw;
        // The program's own sequences are colours and those of bars.
        for sequence in [
            "\u{1b}[8m",
            "\u{1b}]",
            "\u{7}",
            "\u{9b}",
            "\u{202e}",
            "\u{2066}",
            "\u{200f}",
            "\u{61c}",
        ] {
            assert!(!raw.contains(sequence), "{command:?} {sequence:?}: {raw:?}");
        }
    }
    let json = up.run(&[command, &["-o", "json"]].concat()).await.stdout;
    assert_clean(&format!("{command:?} as JSON"), &json);
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registrys_words_do_not_reach_the_terminal() {
    let (up, registry) = tokio::join!(Up::start(), HostileRegistry::start());
    let image = format!("{}/app:v1", registry.host);
    up.larder.write_job("web", &image, ON_NODE_2);
    let run = up.run(&["run", "-f", "web.yaml", "--nodes"]).await;
    assert_clean("run", &run.stdout);
    assert_clean("run", &run.stderr);

    let status = assert_command_is_clean(&up, &["status", "web"]).await;
    // Larder's own registry client drops control characters; container runtimes do not.
    let said = "\u{202e}dne\u{2066}\u{200f}\u{61c}";
    let message = status["jobs"][0]["nodes"][0]["message"].as_str().unwrap();
    assert!(message.contains(said), "JSON keeps what was said: {status}");
    let table = up.run(&["status", "web"]).await.well();
    assert!(table.contains("\\u{202e}dne\\u{2066}"), "it is shown, escaped: {table}");
    assert_command_is_clean(&up, &["why", "web"]).await;
    assert_command_is_clean(&up, &["plan", "-f", "web.yaml"]).await;
    let pull = assert_command_is_clean(&up, &["pull", &image, "--to", "images"]).await;
    assert!(pull["images"][0]["message"].as_str().unwrap().contains(said), "{pull}");

    let log = std::fs::read_to_string(up.larder.home.path().join("data/larder.log")).unwrap();
    assert_clean("larder.log", &log);
    assert!(log.contains("\\u{202e}dne"), "the failure is logged, escaped: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_status_does_not_reach_the_terminal() {
    let up = Up::start().await;
    let kubectl = async |arguments: &[&str]| {
        let mut kubectl = up.larder.command("kubectl");
        kubectl.args(["--kubeconfig", "data/kubeconfig"]).args(arguments);
        ended(kubectl).await
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evil"}});
    up.larder.write("node.json", &node.to_string());
    kubectl(&["create", "-f", "node.json"]).await.well();
    let patch_status = async |kind: &str, status: &Value| {
        let patch = json!({ "status": status }).to_string();
        let arguments = [
            "patch",
            kind,
            "evil",
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        kubectl(&arguments).await.code == Some(0)
    };
    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": HOSTILE, "message": HOSTILE}]});
    assert!(patch_status("node", &ready).await);
    let agent = json!({"agent": {"version": HOSTILE, "runtime": HOSTILE, "publicKey": HOSTILE}});
    wait_until(Duration::from_secs(30), "the node has a NodeImage", async || {
        patch_status("nodeimage", &agent).await
    })
    .await
    .unwrap();
    let report = assert_command_is_clean(&up, &["doctor"]).await;
    assert!(report.to_string().contains("dne"), "the version is named: {report}");

    up.larder
        .write_job("web", "127.0.0.1:1/app:v1", "  selector:\n    names: [evil]\n");
    kubectl(&["create", "-f", "web.yaml"]).await.well();
    wait_until(Duration::from_secs(30), "the node has its order", async || {
        let tags = [{ json!({"tag": "v1", "version": 1, "phase": "Failed", "reason": HOSTILE, "message": HOSTILE}) }];
        let failed = json!({"imageStatuses": {"127.0.0.1:1/app": {"tags": tags}}});
        patch_status("nodeimage", &failed).await && {
            let status = up.json(&["status", "web"]).await;
            status["jobs"][0]["nodes"][0]["phase"] == "Failed"
        }
    })
    .await
    .unwrap();
    let status = assert_command_is_clean(&up, &["status", "web"]).await;
    assert_eq!(status["jobs"][0]["nodes"][0]["reason"], HOSTILE, "{status}");
    assert_command_is_clean(&up, &["why", "web"]).await;
    assert_command_is_clean(&up, &["status", "-A"]).await;
}
