//! TLS towards pods: the certificate, and the settings of the server.

mod certificate;

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use sampan_api_control::Settings;

/// What the server shows, and what pods must trust for it.
pub(crate) struct Identity {
    pub(crate) server: Arc<ServerConfig>,
    /// PEM, one block.
    pub(crate) authority: String,
}

/// Reads the certificate, or makes one.
///
/// # Errors
/// It cannot be written.
pub(crate) fn identity(settings: &Settings) -> io::Result<Identity> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let names = certificate::names(&settings.listen, &settings.domain);
    let found = certificate::get(&settings.folder, &names, &provider)?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(found.chain, found.key)
        .map_err(io::Error::other)?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A pod connects rarely: sessions to resume would be memory for nothing.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Identity { server: Arc::new(server), authority: found.authority })
}
