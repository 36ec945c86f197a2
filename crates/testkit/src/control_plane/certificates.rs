//! The certificates of one control plane: an authority, the server's certificate, the key that signs tokens.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::SERVICE;
use crate::{Result, Scratch};

/// Made anew for every control plane.
pub(super) struct Certificates {
    pub(super) ca: Certificate,
    server: Certificate,
    server_key: KeyPair,
    token_key: KeyPair,
}

impl Certificates {
    pub(super) fn make() -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority
            .distinguished_name
            .push(DnType::CommonName, "larder test control plane");
        let authority_key = KeyPair::generate()?;
        let ca = authority.self_signed(&authority_key)?;

        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let mut params = CertificateParams::new([names.as_slice(), &[SERVICE.0.to_string()]].concat())?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let server = params.signed_by(&server_key, &Issuer::new(authority, authority_key))?;
        Ok(Self {
            ca,
            server,
            server_key,
            token_key: KeyPair::generate()?,
        })
    }

    /// Writes them where the arguments of the servers look for them.
    pub(super) fn write(&self, scratch: &Scratch) -> Result<()> {
        scratch.write("ca.crt", self.ca.pem())?;
        scratch.write("server.crt", self.server.pem())?;
        scratch.write("server.key", self.server_key.serialize_pem())?;
        scratch.write("token.key", self.token_key.serialize_pem())?;
        scratch.write("token.pub", self.token_key.public_key_pem())?;
        Ok(())
    }
}
