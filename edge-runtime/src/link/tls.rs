//! TLS settings of the link: which certificates are trusted, as of what time. Pure construction.
//!
//! Only the cluster's own authority is trusted, never the host's store. A device without a clock battery
//! boots in 1970: no certificate is judged by a time before this program was built or the node last ran.

use super::certificate;
use super::identity::{Identity, IdentityError};
use crate::net::tls::{Trust, client_config, provider};
use crate::sys::board::clock_synchronized;
use edge_protocol::version::RefuseReason;
use rustls::client::Resumption;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::UnixTime;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Seconds of the Unix epoch before which this source did not exist: 2026-01-01.
const SOURCE_EPOCH: u64 = 1_767_225_600;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("tls settings: {0}")]
    Rustls(#[from] rustls::Error),
}

/// Time for checking certificates: a clock, and a time before which the clock is not trusted.
#[derive(Clone, Debug)]
pub struct Time {
    /// The latest time that the node remembers.
    pub floor: SystemTime,
    pub clock: fn() -> SystemTime,
    /// Whether NTP keeps the clock right. Then the stored time is ignored: it came from a bridge, whose own clock may
    /// have been years ahead.
    pub synchronized: fn() -> bool,
}

impl Default for Time {
    /// The system's clock, and nothing remembered.
    fn default() -> Self {
        let synchronized = || clock_synchronized() == Some(true);
        Self { floor: SystemTime::UNIX_EPOCH, clock: SystemTime::now, synchronized }
    }
}

impl Time {
    fn at(&self, clock: SystemTime) -> Duration {
        let [clock, floor] =
            [clock, self.floor].map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        // Packagers set it (reproducible-builds.org); a build at a desk has the constant.
        let built = option_env!("SOURCE_DATE_EPOCH").and_then(|s| s.parse().ok()).unwrap_or(SOURCE_EPOCH);
        let built = Duration::from_secs(built);
        // Even a synchronized clock is wrong if it is before the build of this program.
        if clock >= built && (self.synchronized)() { clock } else { clock.max(built).max(floor) }
    }
}

/// The clock, but never before the floor.
impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.at((self.clock)())))
    }
}

/// Settings of a joined node: the cluster's authority, the node's certificate.
///
/// # Errors
/// The identity's PEM texts do not hold what they should.
pub fn node_config(identity: &Identity, time: Time) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for ca in identity.cas()? {
        roots.add(ca)?;
    }
    let certificate = identity.certificate()?;
    // After that time a node has another certificate. So a bridge whose clock was years ahead cannot make this
    // certificate look expired forever.
    let ceiling = certificate::not_after(&certificate).unwrap_or(time.floor);
    let time = Time { floor: time.floor.min(ceiling), ..time };
    let chain = vec![certificate];
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(time));
    let builder = builder.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let mut config = builder.with_client_auth_cert(chain, identity.key()?)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // The default has room for 256 servers; there is one, or a few replicas.
    config.resumption = Resumption::in_memory_sessions(4);
    Ok(config)
}

/// Settings of a node that joins: it trusts the one authority whose hash the token names.
///
/// # Errors
/// Only if the crypto provider lacks the protocol versions.
pub fn pinned_config(pin: [u8; 32], time: Time) -> Result<ClientConfig, TlsError> {
    let mut config = client_config(Trust::Pinned(pin), Arc::new(time))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the bridge's refusal of the certificate, if that caused the error. With TLS 1.3 the server checks the
/// certificate after the client's handshake is complete, so its alert arrives with the first answer.
pub(super) fn refused_certificate(error: &std::io::Error) -> Option<(RefuseReason, String)> {
    use rustls::AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRevoked, CertificateUnknown, DecryptError,
        UnknownCA,
    };
    let problem = match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(CertificateExpired) => "the certificate of this node has expired",
        rustls::Error::AlertReceived(CertificateRevoked) => "the certificate of this node was revoked",
        // An authority made again under the old name: the signature is wrong, not the issuer unknown.
        rustls::Error::AlertReceived(UnknownCA | DecryptError) => {
            "the bridge has another authority than the one this node joined"
        }
        rustls::Error::AlertReceived(BadCertificate | CertificateUnknown | AccessDenied) => {
            "the bridge does not take the certificate of this node"
        }
        _ => return None,
    };
    Some((RefuseReason::Forbidden, format!("{problem}: join again with a fresh token")))
}

/// Whether the server's certificate is of an authority that is not trusted. Also one made again under the old name.
pub(super) fn is_other_authority(error: &std::io::Error) -> bool {
    use rustls::CertificateError::{BadSignature, UnknownIssuer};
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidCertificate(BadSignature | UnknownIssuer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g25_time_never_falls_below_the_floor() {
        let day = Duration::from_secs(86_400);
        let epoch = SystemTime::UNIX_EPOCH;
        let floored = |floor| Time { floor, synchronized: || false, ..Time::default() };
        let built = floored(epoch);
        assert!(built.at(epoch) >= Duration::from_secs(SOURCE_EPOCH), "a clock in 1970 reads as the build's time");
        let late = Duration::from_secs(4_000_000_000);
        let stored = floored(epoch + late);
        assert_eq!(stored.at(epoch + day), late, "and not before what was stored");
        assert_eq!(stored.at(epoch + late + day), late + day, "a later clock is believed");
        assert_eq!(floored(epoch - day).at(epoch - day), built.at(epoch), "before 1970 is no panic");
        let right = Time { floor: epoch + late, synchronized: || true, ..Time::default() };
        let now = Duration::from_secs(SOURCE_EPOCH * 2);
        assert_eq!(right.at(epoch + now), now, "a clock that is kept right is believed, whatever a bridge once said");
        assert_eq!(right.at(epoch), late, "but not in 1970");
    }
}
