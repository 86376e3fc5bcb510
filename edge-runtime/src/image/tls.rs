//! TLS to a registry with a configured `ca`.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::{CertificateDer, ServerName};
use sampan_trust::Verifier;
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
    let verifier = Arc::new(Verifier::new(Arc::clone(&provider), store, own)?);
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    // `dangerous` is rustls' name for a custom verifier.
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
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
