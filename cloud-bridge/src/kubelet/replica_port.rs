//! The port for kubelet requests that other bridges of the cluster forward. Only bridges are answered, and nothing is forwarded
//! again: a node that is not connected here is reported as such.

use std::convert::Infallible;
use std::sync::Arc;

use apimachinery::flow::Flow;
use apimachinery::panics;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::body::{Body, text};
use super::controller::{self, Asked};
use super::replica::{self, NotABridge};
use super::server;
use crate::accept::client::{Client, Held, held};
use crate::accept::{Busy, Gate};
use crate::bridge::Bridge;
use crate::https_port::HttpsPort;
use crate::pki::authority::Authority;
use crate::pki::clock;
use crate::pki::identity::Holder;

/// Serves forever; does nothing without a port. `names`: the names under which other bridges reach it.
///
/// # Errors
/// No certificate can be made.
pub async fn serve(
    listener: Option<TcpListener>,
    bridge: Bridge,
    authority: &Arc<Authority>,
    names: Vec<String>,
    gate: Arc<Gate>,
) -> anyhow::Result<Infallible> {
    let Some(listener) = listener else { return std::future::pending().await };
    let port = HttpsPort::new(authority, names, &authority.trusted(), &[b"http/1.1"])?;
    log::info!("requests of other bridges are taken at {}", listener.local_addr()?);
    let answer = move |client, holder, request| answer(bridge.clone(), client, holder, request);
    match port.serve(listener, gate, "port of other bridges", answer).await {}
}

async fn answer(
    bridge: Bridge,
    client: Arc<Client>,
    holder: Option<Holder>,
    request: Request<Incoming>,
) -> Response<Held<Body, Option<Busy>>> {
    let (parts, body) = request.into_parts();
    if let Err(refused) = replica::check(holder.as_ref(), clock::now()) {
        client.end();
        let code = match refused {
            NotABridge::Unproven | NotABridge::Expired => StatusCode::UNAUTHORIZED,
            NotABridge::Other(_) => StatusCode::FORBIDDEN,
        };
        return held(text(code, refused.to_string()), None);
    }
    let Some(busy) = client.proven(&Flow::unlimited()) else {
        return held(text(StatusCode::TOO_MANY_REQUESTS, "too many connections are busy"), None);
    };
    let Some(node) = replica::node(&parts.headers) else {
        return held(text(StatusCode::BAD_REQUEST, "the request names no node"), Some(busy));
    };
    let work = format!("kubelet request of another bridge about node {node}");
    let mistake = || text(StatusCode::INTERNAL_SERVER_ERROR, "the bridge has made a mistake");
    let answered = async {
        match Asked::of(&parts.method, &parts.uri).filter(|asked| asked.node == node) {
            Some(asked) => {
                let flow = asked.flow();
                controller::call(&bridge, asked, &flow, body).await
            }
            None => server::forwarded(&bridge, node, &parts).await,
        }
    };
    let answer = panics::isolate(work, answered).await;
    held(answer.unwrap_or_else(mistake), Some(busy))
}
