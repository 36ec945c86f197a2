//! A registry that can be had through a proxy alone, under a name that nobody else knows, with a certificate of an authority
//! that nobody trusts unless told to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use larder_testkit::Registry;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// The registry's name behind the proxy.
pub const HIDDEN: &str = "registry.pantry.invalid";

/// Longest head of a request for a tunnel.
const HEAD: usize = 4096;

/// A proxy that knows one place to go to. It ends when it is dropped.
pub struct Proxied {
    /// Where the proxy listens.
    pub proxy: SocketAddr,
    /// The authority's certificate, as PEM.
    pub authority: String,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Proxied {
    /// Puts a registry behind a proxy.
    pub async fn start(registry: &Registry) -> Self {
        let (authority, acceptor) = certificates();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, behind) = (asked.clone(), registry.address());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                // A connection that breaks is the business of whoever made it.
                tokio::spawn(async move { serve(client, &acceptor, &seen, behind).await.ok() });
            }
        });
        Self {
            proxy,
            authority,
            asked,
            task,
        }
    }

    /// Whether the proxy was asked for the registry.
    pub fn was_asked(&self) -> bool {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .any(|line| line.starts_with(&format!("CONNECT {HIDDEN}:443 ")))
    }
}

impl Drop for Proxied {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn certificates() -> (String, TlsAcceptor) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([HIDDEN.to_owned()])
        .unwrap()
        .signed_by(&key, &Issuer::new(authority, authority_key))
        .unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (pem, TlsAcceptor::from(Arc::new(config)))
}

/// One tunnel, whose far end is the registry with its certificate.
async fn serve(
    mut client: TcpStream,
    acceptor: &TlsAcceptor,
    seen: &Mutex<Vec<String>>,
    registry: SocketAddr,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD {
            return Ok(());
        }
        head.push(client.read_u8().await?);
    }
    let line = String::from_utf8_lossy(&head)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    let known = line.starts_with(&format!("CONNECT {HIDDEN}:443 "));
    seen.lock().unwrap().push(line);
    if !known {
        return client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
    }
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    let mut client = acceptor.accept(client).await?;
    let mut registry = TcpStream::connect(registry).await?;
    copy_bidirectional(&mut client, &mut registry).await.map(drop)
}
