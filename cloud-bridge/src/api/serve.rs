//! The API over TLS: accept, identify by client certificate or bearer token, serve HTTP/1.1 and HTTP/2.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::error::{ApiError, ApiResult};
use super::server::Server;
use super::user::{NODE_PREFIX, NODES, UserInfo};
use super::{auth, http as front};

/// Connections at one time; more wait in the listener's queue.
const CONNECTIONS: usize = 1024;

/// How long a client may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

impl Server {
    /// Serves until the listener fails or the future is dropped. `config` must verify client certificates
    /// against the cluster's CA (offering, not requiring them: tokens are the other way in).
    pub async fn serve_tls(&self, listener: TcpListener, config: Arc<ServerConfig>) -> io::Result<()> {
        let acceptor = TlsAcceptor::from(config);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) if exhausted(&error) => {
                    log::warn!("accepting a client: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (server, acceptor) = (self.clone(), acceptor.clone());
            tokio::spawn(async move {
                let _place = place;
                if let Err(error) = connection(server, acceptor, stream).await {
                    log::debug!("a client's connection: {error}");
                }
            });
        }
    }

    /// Who a request is from: the certificate's user, else the bearer token's.
    fn identify(&self, certificate: Option<&Certified>, headers: &HeaderMap) -> ApiResult<UserInfo> {
        match certificate {
            Some(certified) if certified.holds(SystemTime::now()) => Ok(certified.user.clone()),
            Some(_) => Err(ApiError::unauthorized()),
            None => auth::bearer(&self.inner, headers),
        }
    }
}

/// Errors of accept that pass.
fn exhausted(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset)
        // EMFILE and ENFILE: connections end, descriptors come back.
        || matches!(error.raw_os_error(), Some(23 | 24))
}

async fn connection(server: Server, acceptor: TlsAcceptor, stream: TcpStream) -> io::Result<()> {
    // Watch events are small and must not wait for more.
    stream.set_nodelay(true)?;
    let tls = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long"))??;
    let user = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first()).and_then(|der| Certified::of(der));
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, user) = (server.clone(), user.clone());
        async move {
            let response = match server.identify(user.as_ref(), request.headers()) {
                Ok(user) => server.handle_stranger(&user, request).await,
                Err(error) => front::failure(&error),
            };
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(60));
    builder.http2().timer(TokioTimer::new());
    builder.serve_connection_with_upgrades(TokioIo::new(tls), service).await.map_err(io::Error::other)
}

/// A client's certificate. The TLS layer has verified the chain.
#[derive(Clone)]
struct Certified {
    user: UserInfo,
    /// The end of its time, in seconds since 1970: a connection may live longer.
    until: i64,
}

impl Certified {
    fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Self { user: certificate_user(der)?, until: certificate.validity().not_after.timestamp() })
    }

    /// Nodes are of the same authority but come by the link, where a deletion or a revocation counts at once.
    fn holds(&self, now: SystemTime) -> bool {
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(i64::MAX, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
        now <= self.until && !self.user.in_group(NODES) && !self.user.name.starts_with(NODE_PREFIX)
    }
}

/// The user of a client certificate: its common name, and its organizations as groups. The TLS layer has
/// verified the chain.
pub fn certificate_user(der: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups: Vec<String> = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    (!name.is_empty()).then(|| UserInfo::new(&name, groups))
}
