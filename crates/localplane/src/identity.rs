//! The certificate by which clients know the server, and its key. If both are kept over a restart, copies of
//! the kubeconfig go on working.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// The names that a loopback server is called by.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A self-signed certificate of a loopback server, with its key. Both in PEM.
pub struct Identity {
    /// What clients trust.
    pub certificate: String,
    /// What only the server knows.
    pub key: SecretString,
}

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// None could be made.
    #[error("making a certificate")]
    Make(#[from] rcgen::Error),
    /// It is no PEM.
    #[error("reading the certificate and its key")]
    Read(#[from] pem::Error),
    /// TLS refuses it.
    #[error("configuring TLS")]
    Tls(#[from] rustls::Error),
}

impl Identity {
    /// A new one. It does not expire.
    pub fn generate() -> Result<Self, IdentityError> {
        let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned))?;
        Ok(Self {
            certificate: made.cert.pem(),
            key: SecretString::from(made.signing_key.serialize_pem()),
        })
    }

    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, IdentityError> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(self.key.expose_secret().as_bytes())?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_again() {
        let made = Identity::generate().unwrap();
        let kept = Identity {
            certificate: made.certificate.clone(),
            key: made.key.clone(),
        };
        assert!(kept.acceptor().is_ok());
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let one = Identity::generate().unwrap();
        let other = Identity::generate().unwrap();
        let mixed = Identity {
            certificate: one.certificate,
            key: other.key,
        };
        assert!(matches!(mixed.acceptor(), Err(IdentityError::Tls(_))));
        let empty = Identity {
            certificate: String::new(),
            key: SecretString::from(""),
        };
        assert!(matches!(empty.acceptor(), Err(IdentityError::Read(_))));
    }
}
