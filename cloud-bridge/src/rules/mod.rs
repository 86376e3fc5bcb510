//! The listener for rules: requests over HTTPS that rules lead to the brokers of nodes and to servers on them. Off unless it is
//! asked for.
//!
//! Owns the port and who may use it, and the way to other bridges. Which rule a request is for, and the way to the node, are the
//! bridge's.

mod answer;
mod forward;
mod translate;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::flow::Flow;
use apimachinery::panics;
use apimachinery::user::UserInfo;
use bytes::Bytes;
use clap::Args;
use edge_protocol::message::MAX_BODY;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::accept::client::{Client, Held, held};
use crate::accept::{Busy, Gate};
use crate::bridge::Bridge;
use crate::bridge::rules::desk::Desk;
use crate::flags::authorities;
use crate::https_port::HttpsPort;
use crate::info;
use crate::kubelet::auth::Reviewer;
use crate::listen;
use crate::pki::authority::Authority;
use answer::{Refusal, text};
use forward::Forwarder;
use translate::{FORWARDED, Place, call, place, response};

/// Timeout for the body of a request.
const BODY: Duration = Duration::from_secs(30);

/// How rules (rules.kubeedge.io) are served.
#[derive(Debug, Clone, Default, Args)]
pub struct RuleFlags {
    /// Accept requests for rules over HTTPS at this address: POST /NODE/NAMESPACE/PATH. Absent: none are accepted.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub rules_listen: Option<SocketAddr>,
    /// Address at which other bridges of the cluster reach that port, to pass on requests for nodes that are connected
    /// here. Absent: the address of --rules-listen if others can reach it, that of this machine if it listens
    /// everywhere.
    #[arg(long, value_name = "ADDRESS")]
    pub rules_address: Option<IpAddr>,
    /// Authorities (PEM) to trust for targets of rules, beside those of the system.
    #[arg(long, value_name = "FILE")]
    pub rules_ca: Option<PathBuf>,
}

impl RuleFlags {
    /// # Errors
    /// The file cannot be read, or holds no certificates.
    pub fn authorities(&self) -> anyhow::Result<Vec<CertificateDer<'static>>> {
        let Some(path) = &self.rules_ca else { return Ok(Vec::new()) };
        authorities("--rules-ca", path)
    }

    /// Where other bridges reach the port, if they do: `IP:PORT`.
    ///
    /// # Errors
    /// The socket cannot be asked.
    pub fn place(&self, listener: Option<&TcpListener>) -> std::io::Result<Option<String>> {
        let Some(listener) = listener else { return Ok(None) };
        Ok(info::place(listener.local_addr()?, self.rules_address))
    }

    /// Names under which the port is reached.
    pub fn names(&self, advertise: &[String]) -> Vec<String> {
        let mut names = info::addresses(self.rules_listen.as_slice(), advertise);
        names.extend(self.rules_address.map(|ip| ip.to_string()));
        names
    }

    /// The port, before anything else is begun: a taken one is a clean failure.
    ///
    /// # Errors
    /// It cannot be had.
    pub async fn bind(&self) -> anyhow::Result<Option<TcpListener>> {
        match self.rules_listen {
            Some(address) => Ok(Some(listen::bind(address).await?)),
            None => Ok(None),
        }
    }
}

struct Served {
    desk: Desk,
    reviewer: Reviewer,
    forwarder: Forwarder,
}

/// Serves forever; does nothing without a port. `names`: the names under which clients reach it.
///
/// # Errors
/// No certificate can be made.
pub async fn serve(
    listener: Option<TcpListener>,
    bridge: &Bridge,
    authority: &Arc<Authority>,
    names: Vec<String>,
    client: kube::Client,
    gate: Arc<Gate>,
) -> anyhow::Result<Infallible> {
    let Some(listener) = listener else { return std::future::pending().await };
    let port = HttpsPort::new(authority, names, &[], &[b"h2", b"http/1.1"])?;
    log::info!("requests for rules are taken at {}", listener.local_addr()?);
    let (reviewer, forwarder) = (Reviewer::new(client), Forwarder::new(authority)?);
    let served = Arc::new(Served { desk: bridge.rules(), reviewer, forwarder });
    let answer = move |client, _, request| answer(Arc::clone(&served), client, request);
    match port.serve(listener, gate, "port of rules", answer).await {}
}

async fn answer(
    served: Arc<Served>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Response<Held<Full<Bytes>, Option<Busy>>> {
    let (parts, body) = request.into_parts();
    let allowed = async {
        let subject = served.reviewer.bearer(&parts.headers, client.source()).await?;
        let place = place(&parts.uri)?;
        let found = served.desk.at_path(&place.namespace, &place.path);
        let found = found.map_err(|()| Refusal::NotYet)?.ok_or(Refusal::NoRule)?;
        let flow = Flow::of(&UserInfo::new(&subject.user, subject.groups.iter().cloned()));
        served.reviewer.check_rule(subject, &place.namespace, &found.0.name.1).await?;
        Ok::<_, Refusal>((flow, place, found))
    };
    let (flow, place, (route, rest)) = match allowed.await {
        Ok(allowed) => allowed,
        Err(refusal) => {
            client.end();
            return held(refusal.response(), None);
        }
    };
    let Some(busy) = client.proven(&flow) else {
        return held(text(StatusCode::TOO_MANY_REQUESTS, "too many connections are busy"), None);
    };
    let work = format!("a request for rule {}/{}", route.name.0, route.name.1);
    let done = async {
        let Place { node, query, .. } = place;
        let body = match timeout(BODY, Limited::new(body, MAX_BODY).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Refusal::TooLong.response(),
            Ok(Err(_)) | Err(_) => return text(StatusCode::BAD_REQUEST, "the body did not come as a whole"),
        };
        if let Some(place) = elsewhere(&served.desk, &parts, &node) {
            return served.forwarder.pass_on(&place, &parts, body).await;
        }
        match call(&route.name.0, &route.target, &parts, &rest, query.as_deref(), &body) {
            Ok(call) => response(served.desk.call(&node, &route, call).await),
            Err(refusal) => refusal.response(),
        }
    };
    let mistake = || text(StatusCode::INTERNAL_SERVER_ERROR, "the bridge has made a mistake");
    held(panics::isolate(work, done).await.unwrap_or_else(mistake), Some(busy))
}

/// Where another bridge has the node. What came from there goes nowhere else: it is not here, then.
fn elsewhere(desk: &Desk, parts: &Parts, node: &str) -> Option<String> {
    (!parts.headers.contains_key(FORWARDED)).then(|| desk.elsewhere(node)).flatten()
}
