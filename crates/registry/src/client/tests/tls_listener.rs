//! TLS for servers in this process, with a certificate made by the test.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(super) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

/// A self-signed certificate for this name: what a server needs, and the certificate as clients read it.
pub(super) fn self_signed(name: &str) -> (Arc<ServerConfig>, String) {
    server(name, Arc::new(NoClientAuth))
}

/// The same for a server that asks clients for this certificate, with the certificate and its key.
pub(super) fn asking_for_a_certificate(name: &str) -> (Arc<ServerConfig>, String, String, String) {
    let client = rcgen::generate_simple_self_signed(vec!["client".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(client.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let (config, ca) = server(name, verifier.build().unwrap());
    (config, ca, client.cert.pem(), client.signing_key.serialize_pem())
}

fn server(name: &str, clients: Arc<dyn ClientCertVerifier>) -> (Arc<ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), made.cert.pem())
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, name: &str) -> Self {
        let (config, _) = self_signed(name);
        Self {
            listener,
            acceptor: TlsAcceptor::from(config),
        }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            // A client that does not trust us, or speaks no TLS, hangs up here.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
