//! A port of its own for metrics and health, without TLS: for a Prometheus and a kubelet that have no certificate of the bridge's.
//! Whoever reaches it may read; opt-in (`--metrics-listen`).

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::status::Refusal;
use super::{connection, health, overview};
use crate::accept::{self, Gate};
use crate::bridge::Bridge;

/// Serves until dropped; forever waiting where there is no such port.
pub async fn serve(listener: Option<TcpListener>, bridge: Bridge) -> Infallible {
    let Some(listener) = listener else { return std::future::pending().await };
    // Of its own: who may come here takes no place from nodes.
    accept::each(listener, Gate::new(), "port of metrics", move |socket, peer, arrival| {
        let bridge = bridge.clone();
        async move {
            accept::prepare(&socket)?;
            let (arrival, bridge) = (&*arrival, &bridge);
            connection::serve(socket, peer, arrival, |request| async move {
                let _work = arrival.work();
                route(&request, bridge).await
            })
            .await
        }
    })
    .await
}

async fn route(request: &Request<Incoming>, bridge: &Bridge) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => overview::text(bridge),
        (&Method::GET, "/livez" | "/healthz") => health::live(),
        (&Method::GET, "/readyz") => health::ready(bridge).await,
        (_, "/metrics" | "/livez" | "/healthz" | "/readyz") => Refusal::method_not_allowed().into_response(),
        (_, path) => Refusal::not_found(path).into_response(),
    }
}
