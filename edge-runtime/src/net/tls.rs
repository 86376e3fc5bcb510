//! Judging servers by other means than a list of authorities. Knows nothing of who they are.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Which servers are trusted.
#[derive(Debug)]
pub enum Trust {
    /// Any server.
    Anybody,
    /// The authority whose certificate has this hash; the server sends it along.
    Pinned([u8; 32]),
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Settings of a client that shows no certificate of its own.
///
/// # Errors
/// Only if the crypto provider lacks the protocol versions.
pub fn client_config(trust: Trust, time: Arc<dyn TimeProvider>) -> Result<ClientConfig, Error> {
    let provider = provider();
    let verifier = Arc::new(Verifier { trust, provider: Arc::clone(&provider) });
    let builder = ClientConfig::builder_with_details(provider, time).with_safe_default_protocol_versions()?;
    // `dangerous` is rustls' name for a custom verifier.
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Pinned(pin) = self.trust else { return Ok(ServerCertVerified::assertion()) };
        let Some(ca) = intermediates.iter().find(|one| digest(&SHA256, one).as_ref() == pin) else {
            return Err(Error::General(
                "the bridge does not have the authority that the token names: wrong bridge, or a wrong or old token"
                    .into(),
            ));
        };
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|e| Error::General(e.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
