//! A port of its own for metrics and health, without TLS: for a Prometheus and a kubelet that have no certificate of the bridge's.
//! Whoever reaches it may read; opt-in (`--metrics-listen`).

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use super::status::Refusal;
use super::{health, overview};
use crate::accept::{self, ARRIVAL, Gate};
use crate::bridge::Bridge;
use apimachinery::panics;

/// Serves until dropped; forever waiting where there is no such port.
pub async fn serve(listener: Option<TcpListener>, bridge: Bridge) -> Infallible {
    let Some(listener) = listener else { return std::future::pending().await };
    // Of its own: who may come here takes no place from nodes.
    accept::each(listener, Gate::new(), "port of metrics", move |socket, peer, arrival| {
        let bridge = bridge.clone();
        async move {
            accept::prepare(&socket)?;
            let service = service_fn(|request: Request<Incoming>| {
                let (bridge, arrival) = (bridge.clone(), Arc::clone(&arrival));
                async move {
                    let _work = arrival.work();
                    let answer = panics::isolate(format!("request of {peer}"), route(&request, &bridge)).await;
                    let mistake = || Refusal::internal("the bridge has made a mistake").into_response();
                    Ok::<_, Infallible>(answer.unwrap_or_else(mistake))
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(ARRIVAL)
                .max_buf_size(16 * 1024)
                .serve_connection(TokioIo::new(socket), service);
            arrival.within(async { connection.await.map_err(io::Error::other) }).await
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
