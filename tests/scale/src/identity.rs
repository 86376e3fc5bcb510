//! Certificates in bulk, as from a join: signed by the bridge's authority for one node name each.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Signs for all nodes.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
    /// One key for all: the bridge handles a certificate independently of its key.
    key: KeyPair,
}

impl Authority {
    pub(crate) fn read(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let text = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let ca = CertificateDer::from_pem_slice(text(certificate)?.as_bytes())?;
        let issuer = Issuer::from_ca_cert_der(&ca, KeyPair::from_pem(&text(key)?)?)?;
        let mut roots = RootCertStore::empty();
        roots.add(ca)?;
        Ok(Self { issuer, roots: Arc::new(roots), key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)? })
    }

    /// TLS settings of one node.
    pub(crate) fn node(&self, node: &str) -> anyhow::Result<Arc<ClientConfig>> {
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, "system:nodes");
        name.push(DnType::CommonName, format!("system:node:{node}"));
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(2024, 1, 1);
        params.not_after = date_time_ymd(2099, 1, 1);
        let certificate = params.signed_by(&self.key, &self.issuer)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config = ClientConfig::builder()
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_auth_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(2);
        Ok(Arc::new(config))
    }
}
