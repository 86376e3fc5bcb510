//! TLS to a registry with a configured `ca`. The file may have an authority's certificate, or the registry's own. A
//! certificate of `openssl req -x509` claims to be an authority (CA:TRUE), which webpki refuses for a server and other
//! clients (OpenSSL, Go) accept.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// A client that trusts these authorities, and servers that show one of `own` itself.
///
/// # Errors
/// A certificate cannot be used as an authority.
pub(super) fn client(
    provider: Arc<CryptoProvider>,
    roots: &[CertificateDer<'static>],
    own: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, rustls::Error> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider))
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let verifier = Arc::new(Verifier { by_authority, own });
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    // `dangerous` is rustls' name for a custom verifier.
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct Verifier {
    by_authority: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.by_authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // webpki looks at the time before it says this, and at the name after.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
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
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Puts TLS on connections of ureq, which has no place for a verifier.
#[derive(Debug)]
pub(super) struct Tls(pub(super) Arc<ClientConfig>);

impl<In: Transport> Connector<In> for Tls {
    type Out = Either<In, Encrypted>;

    fn connect(&self, details: &ConnectionDetails<'_>, below: Option<In>) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = below else { return Ok(None) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().ok_or(Error::HostNotFound)?.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|_| Error::HostNotFound)?;
        let mut connection = ClientConnection::new(Arc::clone(&self.0), name)?;
        let mut socket = TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time));
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(Encrypted { buffers, stream: StreamOwned::new(connection, socket) })))
    }
}

/// One connection.
pub(super) struct Encrypted {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypted").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    /// What `openssl req -x509` makes for this name.
    fn self_signed(name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2024, 1, 1), rcgen::date_time_ymd(2035, 1, 1));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn self_signed_certificate_is_trusted_if_it_is_the_configured() {
        let (own, other) = (self_signed("reg.example"), self_signed("reg.example"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut store = RootCertStore::empty();
        store.add(own.clone()).unwrap();
        let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider).build().unwrap();
        let verifier = Verifier { by_authority, own: vec![own.clone()] };
        let judge = |shown: &CertificateDer<'static>, name: &'static str, year: u64| {
            let now = Duration::from_secs((year - 1970) * 31_557_600);
            let name = ServerName::try_from(name).unwrap();
            verifier.verify_server_cert(shown, &[], &name, &[], UnixTime::since_unix_epoch(now)).map(drop)
        };
        judge(&own, "reg.example", 2030).unwrap();
        assert!(judge(&other, "reg.example", 2030).is_err(), "one of the same name is not it");
        assert!(judge(&own, "elsewhere.example", 2030).is_err(), "it is of another name");
        assert!(judge(&own, "reg.example", 2040).is_err(), "it has expired");
    }
}
