//! TLS settings of the listeners. Pure construction; accepts nothing by itself.

use std::sync::Arc;

use rustls::server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;

use super::PkiError;
use super::authority::{Authority, Signed};

/// Makes ring the process's crypto provider. Harmless when repeated.
pub fn install_provider() {
    // An error means that one is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A listener that sends `server` with the authority in its chain (so that a joining node can pin it) and
/// asks for a client certificate of one of `client_cas`, without insisting on it. No `client_cas`: none asked.
pub fn server_config(
    authority: &CertificateDer<'static>,
    server: Signed,
    client_cas: &[CertificateDer<'static>],
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, PkiError> {
    let verifier: Arc<dyn ClientCertVerifier> = if client_cas.is_empty() {
        Arc::new(NoClientAuth)
    } else {
        let mut roots = RootCertStore::empty();
        for ca in client_cas {
            roots.add(ca.clone())?;
        }
        WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build()?
    };
    let mut config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![server.certificate, authority.clone()], server.key)?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// The settings of the link's listener.
pub fn link_config(authority: &Authority, addresses: &[String]) -> Result<Arc<ServerConfig>, PkiError> {
    let ca = authority.certificate();
    server_config(ca, authority.server(addresses)?, std::slice::from_ref(ca), &[b"http/1.1"])
}
