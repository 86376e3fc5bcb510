//! TLS settings of the link: which certificates are trusted, as of what time. Pure construction.
//!
//! Only the cluster's own authority is trusted, never the host's store. A device without a clock battery
//! boots in 1970: no certificate is judged by a time before this program was built or the node last ran.

use super::certificate;
use super::identity::{Identity, IdentityError};
use crate::sys::board::clock_synchronized;
use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
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

/// What certificates are judged by: a clock, and a time before which it is not believed.
#[derive(Clone, Debug)]
pub struct Time {
    /// The latest time that the node remembers.
    pub floor: SystemTime,
    pub clock: fn() -> SystemTime,
    /// Whether something keeps the clock right (NTP): then what is remembered counts for nothing. It came from a bridge,
    /// whose own clock may have been years ahead.
    pub synchronized: fn() -> bool,
}

impl Default for Time {
    /// The system's clock, and nothing remembered.
    fn default() -> Self {
        let synchronized = || clock_synchronized() == Some(true);
        Self { floor: SystemTime::UNIX_EPOCH, clock: SystemTime::now, synchronized }
    }
}

/// A clock, but never before the floor.
#[derive(Debug)]
struct FlooredTime {
    built: Duration,
    stored: Duration,
    clock: fn() -> SystemTime,
    synchronized: fn() -> bool,
}

impl FlooredTime {
    fn new(Time { floor: stored, clock, synchronized }: Time) -> Self {
        let stored = stored.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Packagers set it (reproducible-builds.org); a build at a desk has the constant.
        let built = option_env!("SOURCE_DATE_EPOCH").and_then(|s| s.parse().ok()).unwrap_or(SOURCE_EPOCH);
        Self { built: Duration::from_secs(built), stored, clock, synchronized }
    }

    fn at(&self, clock: SystemTime) -> Duration {
        let clock = clock.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // A kernel that was told wrong before this program was built is not right, whatever it believes.
        if clock >= self.built && (self.synchronized)() { clock } else { clock.max(self.built).max(self.stored) }
    }
}

impl TimeProvider for FlooredTime {
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
    // A node that comes later than that comes with another certificate. What a bridge once said that was years ahead is
    // no reason to find this one's expired for ever.
    let ceiling = certificate::not_after(&certificate).unwrap_or(time.floor);
    let time = Time { floor: time.floor.min(ceiling), ..time };
    let chain = vec![certificate];
    let mut config = builder(time)?.with_root_certificates(roots).with_client_auth_cert(chain, identity.key()?)?;
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
    let verifier = Pinned { pin, provider: provider() };
    let mut config = builder(time)?
        .dangerous() // the name of the method that takes a verifier of one's own
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn builder(time: Time) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    let time = Arc::new(FlooredTime::new(time));
    ClientConfig::builder_with_details(provider(), time).with_safe_default_protocol_versions()
}

/// Finds the pinned authority in the chain the server sends, and then checks the server as usual.
#[derive(Debug)]
struct Pinned {
    pin: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn authority(&self, chain: &[CertificateDer<'_>]) -> Option<CertificateDer<'static>> {
        let pinned = chain.iter().find(|c| digest(&SHA256, c).as_ref() == self.pin)?;
        Some(pinned.clone().into_owned())
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(ca) = self.authority(intermediates) else {
            return Err(rustls::Error::General(
                "the bridge does not have the authority that the token names: wrong bridge, or wrong token".into(),
            ));
        };
        let mut roots = RootCertStore::empty();
        roots.add(ca)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g25_time_never_falls_below_the_floor() {
        let day = Duration::from_secs(86_400);
        let epoch = SystemTime::UNIX_EPOCH;
        let floored = |floor| FlooredTime::new(Time { floor, synchronized: || false, ..Time::default() });
        let built = floored(epoch);
        assert!(built.at(epoch) >= Duration::from_secs(SOURCE_EPOCH), "a clock in 1970 reads as the build's time");
        let late = Duration::from_secs(4_000_000_000);
        let stored = floored(epoch + late);
        assert_eq!(stored.at(epoch + day), late, "and not before what was stored");
        assert_eq!(stored.at(epoch + late + day), late + day, "a later clock is believed");
        assert_eq!(floored(epoch - day).at(epoch - day), built.at(epoch), "before 1970 is no panic");
        let right = FlooredTime::new(Time { floor: epoch + late, synchronized: || true, ..Time::default() });
        let now = Duration::from_secs(SOURCE_EPOCH * 2);
        assert_eq!(right.at(epoch + now), now, "a clock that is kept right is believed, whatever a bridge once said");
        assert_eq!(right.at(epoch), late, "but not in 1970");
    }
}
