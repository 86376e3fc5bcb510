//! The port of the embedded API: authenticates by client certificate or bearer token, and passes requests on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::accept::client::{self, Client, Held, held};
use crate::accept::{self, Busy, Gate};
use crate::pki::clock;
use crate::pki::identity::Holder;
use apimachinery::flow::Flow;
use apimachinery::user::{NODE_PREFIX, NODES, UserInfo};
use apiserver::http::failure;
use apiserver::{ApiBody, ApiError, Overdrawn, Server};

/// User of a connection's certificate, and the end of its validity: a connection may last longer.
#[derive(Clone)]
struct Certified {
    user: UserInfo,
    expires: SystemTime,
}

impl Certified {
    /// The common name is the user, the organizations are the groups. The TLS layer has verified the chain.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let Holder { subject, expires, .. } = Holder::of(certificate)?;
        (!subject.user.is_empty()).then(|| Self { user: UserInfo::new(&subject.user, subject.groups), expires })
    }

    /// Nodes have certificates of the same authority but connect through the link, where a deletion or revocation takes
    /// effect at once.
    fn holds(&self, now: SystemTime) -> bool {
        now < self.expires && !self.user.in_group(NODES) && !self.user.name.starts_with(NODE_PREFIX)
    }
}

/// Serves until dropped. `config` must verify client certificates against the cluster's CA, but must not require them,
/// because tokens are the alternative.
pub async fn serve(server: Server, listener: TcpListener, config: Arc<ServerConfig>, gate: Arc<Gate>) -> Infallible {
    let tls = TlsAcceptor::from(config);
    let (counted, port) = (Arc::clone(&gate), "API");
    accept::each(listener, counted, port, move |socket, peer, arrival| {
        let (server, tls) = (server.clone(), tls.clone());
        let client = Client::new(Arc::clone(&gate), peer.ip(), arrival);
        async move {
            let caller = Arc::clone(&client);
            let handler = move |certificate: Option<&CertificateDer<'_>>| {
                let certified = certificate.and_then(Certified::of);
                move |request| answer(server.clone(), Arc::clone(&caller), certified.clone(), request)
            };
            client::serve(socket, tls, client, handler).await
        }
    })
    .await
}

/// The user of a request: by its certificate, otherwise by its bearer token.
fn identify(server: &Server, certified: Option<&Certified>, headers: &HeaderMap) -> Result<UserInfo, ApiError> {
    match certified {
        Some(certified) if certified.holds(clock::now()) => Ok(certified.user.clone()),
        Some(_) => Err(ApiError::unauthorized()),
        None => server.bearer(headers),
    }
}

async fn answer(
    server: Server,
    client: Arc<Client>,
    certified: Option<Certified>,
    request: Request<Incoming>,
) -> Response<Held<ApiBody, Option<Busy>>> {
    let user = match identify(&server, certified.as_ref(), request.headers()) {
        Ok(user) => user,
        Err(error) => {
            // Like the API server: an unauthenticated client gets one answer for each connection.
            client.end();
            return held(failure(&error), None);
        }
    };
    let flow = Flow::of(&user);
    let busy = client.proven(&flow);
    if busy.is_none() {
        let error = ApiError::too_many_requests("Too many connections are busy, please try again later.");
        return held(failure(&error), None);
    }
    let answer = server.handle_stranger(&user, request).await;
    if answer.extensions().get::<Overdrawn>().is_some() {
        client.end();
    }
    held(answer, busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_certificate_counts_until_its_end_on_a_connection_that_stands() {
        let now = SystemTime::now();
        let of = |name: &str, groups: &[&str]| Certified {
            user: UserInfo::new(name, groups.iter().copied()),
            expires: now + Duration::from_secs(60),
        };
        let admin = of("admin", &["system:masters"]);
        assert!(admin.holds(now) && admin.holds(now + Duration::from_secs(59)));
        assert!(!admin.holds(now + Duration::from_secs(60)));
        assert!(!of("system:node:a", &[]).holds(now) && !of("x", &[NODES]).holds(now), "nodes come by the link");
    }
}
