//! A port over HTTPS for clients that prove themselves with each request or by a certificate. Owns the port's own
//! certificate, which is renewed while it is served. Does not interpret requests or decide who may send them.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::accept::client::{self, Client};
use crate::accept::{self, Gate};
use crate::pki::PkiError;
use crate::pki::authority::Authority;
use crate::pki::identity::Holder;
use crate::pki::serving::Serving;
use crate::pki::tls;

/// TLS of a port that is about to be served.
pub(crate) struct HttpsPort {
    serving: Arc<Serving>,
    tls: TlsAcceptor,
}

impl HttpsPort {
    /// Creates the certificate for these names, under which clients reach the port. `client_cas` and `protocols` (ALPN):
    /// see [`tls::lasting_config`].
    ///
    /// # Errors
    /// No certificate can be made.
    pub(crate) fn new(
        authority: &Arc<Authority>,
        names: Vec<String>,
        client_cas: &[CertificateDer<'static>],
        protocols: &[&[u8]],
    ) -> Result<Self, PkiError> {
        let serving = Serving::new(Arc::clone(authority), names)?;
        let tls = TlsAcceptor::from(tls::lasting_config(&serving, client_cas, protocols)?);
        Ok(Self { serving, tls })
    }

    /// Serves until dropped. `label` names the port in logs. `answer` receives the connection and the holder of its
    /// client certificate, if it has one.
    pub(crate) async fn serve<A, F, B>(
        self,
        listener: TcpListener,
        gate: Arc<Gate>,
        label: &str,
        answer: A,
    ) -> Infallible
    where
        A: Fn(Arc<Client>, Option<Holder>, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Self { serving, tls } = self;
        let accepting = accept::each(listener, Arc::clone(&gate), label, move |socket, peer, arrival| {
            let (tls, answer) = (tls.clone(), answer.clone());
            let client = Client::new(Arc::clone(&gate), peer.ip(), arrival);
            async move {
                let caller = Arc::clone(&client);
                let handler = move |certificate: Option<&CertificateDer<'_>>| {
                    let holder = certificate.and_then(Holder::of);
                    move |request| answer(Arc::clone(&caller), holder.clone(), request)
                };
                client::serve(socket, tls, client, handler).await
            }
        });
        tokio::select! {
            never = accepting => match never {},
            () = serving.keep_fresh() => std::future::pending().await,
        }
    }
}
