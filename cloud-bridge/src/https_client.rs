//! A client for ports of bridges over HTTPS, which believes only the authorities that it is given.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

use crate::pki::clock;

/// Timeout of connecting to a bridge.
const CONNECT: Duration = Duration::from_secs(5);

/// Sends requests with a whole body, over HTTP/1.1.
pub(crate) type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Creates a client that opens a connection for each request: a bridge ends idle ones, and a request must not meet one that
/// is ending.
///
/// # Errors
/// One of `authorities` cannot be read.
pub(crate) fn https_client(authorities: Vec<CertificateDer<'static>>) -> Result<HttpsClient, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for one in authorities {
        roots.add(one)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(clock::Floored));
    let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT));
    let connector = HttpsConnectorBuilder::new().with_tls_config(config);
    let connector = connector.https_only().enable_http1().wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector))
}
