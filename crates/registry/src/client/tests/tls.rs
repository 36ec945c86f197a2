//! Whom we trust behind `https`. The server is a real one, with a certificate made by the test.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::tls_listener::{asking_for_a_certificate, self_signed};
use super::*;

struct TlsServer {
    address: String,
    ca_pem: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TlsServer {
    /// Gives everybody who shakes hands the same answer.
    fn start(answer: &'static str) -> Self {
        let (config, ca_pem) = self_signed("127.0.0.1");
        Self::start_with(config, ca_pem, answer)
    }

    fn start_with(config: Arc<ServerConfig>, ca_pem: String, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                // A client that does not trust us hangs up here.
                if stream.read(&mut [0; 4096]).is_ok() {
                    stream.write_all(answer.as_bytes()).ok();
                    stream.conn.send_close_notify();
                    stream.flush().ok();
                }
            }
        });
        Self {
            address,
            ca_pem,
            stop,
            thread: Some(thread),
        }
    }

    async fn resolve(&self, hosts_toml: &str) -> Result<Descriptor, RegistryError> {
        self.resolve_with(hosts_toml, &[]).await
    }

    /// With these files beside the `hosts.toml`.
    async fn resolve_with(&self, hosts_toml: &str, files: &[(&str, &str)]) -> Result<Descriptor, RegistryError> {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join(&self.address);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("ca.pem"), &self.ca_pem).unwrap();
        fs::write(own.join("empty.pem"), "").unwrap();
        for (name, content) in files {
            fs::write(own.join(name), content).unwrap();
        }
        let text = format!("server = \"https://{}\"\n{hosts_toml}", self.address);
        fs::write(own.join("hosts.toml"), text).unwrap();
        let settings = Settings {
            hosts: Hosts::in_dir(Path::new(dir.path())),
            tries: 1,
            ..Settings::default()
        };
        let image = ImageRef::parse(&format!("{}/app:v1", self.address)).unwrap();
        RegistryClient::new(settings)
            .repository(&image, vec![])?
            .resolve()
            .await
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread from waiting for a connection.
        std::net::TcpStream::connect(&self.address).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

const FOUND: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.oci.image.manifest.v1+json\r\nContent-Length: 7\r\n\
    Docker-Content-Digest: sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\
    Connection: close\r\n\r\n";
const TO_PLAIN_HTTP: &str =
    "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://192.0.2.1/x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[rstest]
#[case::unknown_authority("", Err(Reason::Tls))]
#[case::ca_beside_the_file("ca = \"ca.pem\"", Ok(7))]
#[case::not_checked("skip_verify = true", Ok(7))]
#[case::ca_file_missing("ca = \"gone.pem\"", Err(Reason::Tls))]
#[case::ca_file_empty("ca = \"empty.pem\"", Err(Reason::Tls))]
#[tokio::test]
async fn trusts(#[case] hosts_toml: &str, #[case] want: Result<u64, Reason>) {
    let server = TlsServer::start(FOUND);
    let found = server.resolve(hosts_toml).await;
    assert_eq!(found.as_ref().map(|d| d.size).map_err(|e| e.reason), want, "{found:?}");
}

#[rstest]
#[case::two_files("client = [[\"own.pem\", \"own.key\"]]", true)]
#[case::one_file("client = \"both.pem\"", true)]
#[case::no_key("client = \"own.pem\"", false)]
#[case::no_file("client = \"gone.pem\"", false)]
#[case::none("", false)]
#[tokio::test]
async fn shows_a_client_certificate(#[case] field: &str, #[case] want: bool) {
    let (config, ca, certificate, key) = asking_for_a_certificate("127.0.0.1");
    let server = TlsServer::start_with(config, ca, FOUND);
    let both = format!("{certificate}{key}");
    let files = [("own.pem", &*certificate), ("own.key", &*key), ("both.pem", &*both)];
    let found = server.resolve_with(&format!("ca = \"ca.pem\"\n{field}"), &files).await;
    assert_eq!(found.is_ok(), want, "{found:?}");
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_not_followed() {
    let server = TlsServer::start(TO_PLAIN_HTTP);
    let error = server.resolve("ca = \"ca.pem\"").await.unwrap_err();
    assert_eq!(error.reason, Reason::Tls);
    assert!(causes(&error).contains("from https to plain http"), "{error:?}");
    assert!(!format!("{error:?}").contains("192.0.2.1"), "{error:?}");
}

#[tokio::test]
async fn plain_http_where_tls_is_expected_is_a_tls_failure() {
    let registry = FakeRegistry::start().await;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(&registry.address)).unwrap();
    let text = format!("server = \"https://{}\"\nskip_verify = true", registry.address);
    fs::write(dir.path().join(&registry.address).join("hosts.toml"), text).unwrap();
    let client = RegistryClient::new(Settings {
        hosts: Hosts::in_dir(dir.path()),
        tries: 1,
        ..Settings::default()
    });
    let error = client
        .repository(&registry.image("app:v1"), vec![])
        .unwrap()
        .resolve()
        .await
        .unwrap_err();
    assert_eq!(error.reason, Reason::Tls, "{error:?}");
}
