//! A client of the port of a running bridge, with an operator's certificate that it makes for itself. A user who can read the key
//! of the authority controls the bridge anyway: that certificate adds no right.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;

use crate::listen::OPERATORS;
use crate::pki::authority::Authority;
use crate::pki::encoding::to_pem;
use crate::pki::{PkiError, keep};

/// A bridge on the other side of a slow link answers within this.
const PATIENCE: Duration = Duration::from_secs(30);

/// The authority of a bridge: from its state folder, or from its cluster.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn authority(client: &kube::Client, state: Option<&Path>) -> Result<Authority, PkiError> {
    match state {
        Some(state) => keep::of_folder(state),
        None => keep::in_cluster(client).await,
    }
}

/// An operator of one bridge.
pub(crate) struct Operator(kube::Client);

impl Operator {
    /// `bridge`: `https://HOST:PORT` of the link.
    ///
    /// # Errors
    /// The address is not a URL, or a certificate cannot be made.
    pub(crate) fn new(authority: &Authority, bridge: &str) -> anyhow::Result<Self> {
        let signed = authority.client("cloud-bridge-nodes", OPERATORS)?;
        let pem = to_pem("CERTIFICATE", &signed.certificate) + &to_pem("PRIVATE KEY", signed.key.secret_der());
        let pem = STANDARD.encode(pem);
        let mut config = kube::Config::new(bridge.parse()?);
        config.root_cert = Some(authority.trusted().iter().map(|one| one.to_vec()).collect());
        config.auth_info.client_certificate_data = Some(pem.clone());
        config.auth_info.client_key_data = Some(pem.into());
        config.connect_timeout = Some(PATIENCE);
        config.read_timeout = Some(PATIENCE);
        Ok(Self(kube::Client::try_from(config)?))
    }

    /// The body of `GET path`.
    ///
    /// # Errors
    /// The bridge does not answer, or refuses.
    pub(crate) async fn get(&self, path: &str) -> Result<String, kube::Error> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.0.request_text(request).await
    }
}
