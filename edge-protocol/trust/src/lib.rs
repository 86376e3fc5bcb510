//! TLS to servers for which a file with certificates is configured: a registry's `ca`, `--rules-ca`. The file may have
//! an authority's certificate, or the server's own. A certificate of `openssl req -x509` claims to be an authority
//! (CA:TRUE), which webpki refuses for a server and other clients (OpenSSL, Go) accept.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Trusts authorities, and servers that show one of `own` itself.
#[derive(Debug)]
pub struct Verifier {
    by_authority: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// # Errors
    /// No certificate can be used as an authority.
    pub fn new(
        provider: Arc<CryptoProvider>,
        roots: RootCertStore,
        own: Vec<CertificateDer<'static>>,
    ) -> Result<Self, Error> {
        let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(Self { by_authority, own })
    }
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
        match self.by_authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // webpki looks at the time before it says this, and at the name after.
            Err(Error::InvalidCertificate(CertificateError::Other(other)))
                if format!("{other:?}").contains("CaUsedAsEndEntity")
                    && self.own.iter().any(|own| own == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    /// A certificate as `openssl req -x509` makes it.
    fn self_signed() -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["target.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2024, 1, 1), rcgen::date_time_ymd(2035, 1, 1));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn self_signed_certificate_is_trusted_if_it_is_the_configured() {
        let (own, other) = (self_signed(), self_signed());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(own.clone()).unwrap();
        let verifier = Verifier::new(provider, roots, vec![own.clone()]).unwrap();
        let judge = |shown: &CertificateDer<'static>, name: &'static str, year: u64| {
            let now = Duration::from_secs((year - 1970) * 31_557_600);
            let name = ServerName::try_from(name).unwrap();
            verifier.verify_server_cert(shown, &[], &name, &[], UnixTime::since_unix_epoch(now)).map(drop)
        };
        judge(&own, "target.example", 2030).unwrap();
        assert!(judge(&other, "target.example", 2030).is_err(), "one of the same name is not it");
        assert!(judge(&own, "elsewhere.example", 2030).is_err(), "it is of another name");
        assert!(judge(&own, "target.example", 2040).is_err(), "it has expired");
    }
}
