//! TLS settings of the listeners. Pure construction; accepts nothing by itself.

use std::sync::Arc;

use rustls::server::{NoClientAuth, ResolvesServerCert, WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};
use rustls_pki_types::CertificateDer;

use super::authority::{Authority, Signed};
use super::serving::Serving;
use super::{PkiError, clock};

/// Installs ring as the process's crypto provider. It may be called again.
pub fn install_provider() {
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A listener that sends `server` with the authority in its chain (so that a joining node can pin it), and requests an
/// optional client certificate of one of `client_cas`. Without `client_cas` it requests none.
pub fn server_config(
    authority: &CertificateDer<'static>,
    server: Signed,
    client_cas: &[CertificateDer<'static>],
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, PkiError> {
    let mut config = builder()?
        .with_client_cert_verifier(verifier(client_cas)?)
        .with_single_cert(vec![server.certificate, authority.clone()], server.key)?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Same as [`server_config`], with a certificate that is renewed while the listener runs.
pub fn lasting_config(
    serving: &Arc<Serving>,
    client_cas: &[CertificateDer<'static>],
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, PkiError> {
    let resolver: Arc<dyn ResolvesServerCert> = Arc::<Serving>::clone(serving);
    let mut config = builder()?.with_client_cert_verifier(verifier(client_cas)?).with_cert_resolver(resolver);
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// The settings of the link's listener.
pub fn link_config(authority: &Arc<Authority>, serving: &Arc<Serving>) -> Result<Arc<ServerConfig>, PkiError> {
    lasting_config(serving, &authority.trusted(), &[b"http/1.1"])
}

/// Certificates are checked with the bridge's clock.
fn builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_details(provider, Arc::new(clock::Floored));
    Ok(builder.with_safe_default_protocol_versions()?)
}

fn verifier(client_cas: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
    if client_cas.is_empty() {
        return Ok(Arc::new(NoClientAuth));
    }
    let mut roots = RootCertStore::empty();
    for ca in client_cas {
        roots.add(ca.clone())?;
    }
    Ok(WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build()?)
}
