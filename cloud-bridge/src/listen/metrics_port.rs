//! Separate ports for metrics and health, without TLS: for a Prometheus and a kubelet without a certificate of the
//! bridge. Any client that reaches one may read; opt-in (`--metrics-listen`, `--health-listen`).

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::status::Refusal;
use super::{connection, health, overview};
use crate::accept::{self, Gate, Lingering};
use crate::bridge::Bridge;

/// Ports without TLS; each is optional.
#[derive(Debug)]
pub struct PlainPorts {
    pub(crate) metrics: Option<TcpListener>,
    pub(crate) health: Option<TcpListener>,
}

/// Serves until dropped; waits forever without ports.
pub async fn serve(ports: PlainPorts, bridge: Bridge) -> Infallible {
    tokio::select! {
        never = port(ports.metrics, bridge.clone(), true) => never,
        never = port(ports.health, bridge, false) => never,
    }
}

async fn port(listener: Option<TcpListener>, bridge: Bridge, with_metrics: bool) -> Infallible {
    let Some(listener) = listener else { return std::future::pending().await };
    // A separate gate, so that these clients take no places from nodes.
    accept::each(
        listener,
        Gate::new(),
        if with_metrics { "port of metrics" } else { "port of health" },
        move |socket, peer, arrival| {
            let bridge = bridge.clone();
            async move {
                accept::prepare(&socket)?;
                let (arrival, bridge) = (&*arrival, &bridge);
                connection::serve(Lingering::new(socket), peer, arrival, |request| async move {
                    let _work = arrival.work();
                    route(&request, bridge, with_metrics).await
                })
                .await
            }
        },
    )
    .await
}

async fn route(request: &Request<Incoming>, bridge: &Bridge, with_metrics: bool) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (_, "/metrics") if !with_metrics => Refusal::not_found("/metrics").into_response(),
        (&Method::GET, "/metrics") => overview::text(bridge),
        (&Method::GET, "/livez" | "/healthz") => health::live(),
        (&Method::GET, "/readyz") => health::ready(bridge).await,
        (_, "/metrics" | "/livez" | "/healthz" | "/readyz") => Refusal::method_not_allowed().into_response(),
        (_, path) => Refusal::not_found(path).into_response(),
    }
}
