//! One node's kubelet API over TLS.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::auth::{Denied, Reviewer};
use super::body::{Body, full, text, with_type};
use super::forward::Forwarder;
use crate::accept::client::{self, Client, Held, held};
use crate::accept::{self, Busy, Gate};
use crate::bridge::{Bridge, counters};
use crate::pki::identity::Holder;
use apimachinery::flow::Flow;
use apimachinery::panics;
use kubelet_api::backend::PodOnNode;
use kubelet_api::read::{self, PLAIN};
use kubelet_api::request::{self, KubeletRequest, RequestError};
use kubelet_api::streaming::{self, ErrorResponse};

/// The node whose API is served.
pub(super) struct Served {
    pub(super) node: String,
    pub(super) bridge: Bridge,
    pub(super) forwarder: Option<Arc<Forwarder>>,
    pub(super) reviewer: Arc<Reviewer>,
}

/// Accepts until the port is closed, which also ends its connections: the port may belong to another node next.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    gate: Arc<Gate>,
    served: Arc<Served>,
    closed: watch::Receiver<()>,
) {
    let (tls, counted) = (TlsAcceptor::from(tls), Arc::clone(&gate));
    let port = format!("kubelet port of {}", served.node);
    let until = closed.clone();
    let accepting = accept::each(listener, counted, &port, move |socket, peer, arrival| {
        let (tls, served, mut closed) = (tls.clone(), Arc::clone(&served), until.clone());
        let client = Client::new(Arc::clone(&gate), peer.ip(), arrival);
        async move {
            let caller = Arc::clone(&client);
            let handler = move |certificate: Option<&CertificateDer<'_>>| {
                let holder = certificate.and_then(Holder::of);
                move |request| answer(Arc::clone(&served), Arc::clone(&caller), holder.clone(), request)
            };
            tokio::select! {
                done = client::serve(socket, tls, client, handler) => done,
                // Nothing is ever sent: the sender is dropped.
                _ = closed.changed() => Ok(()),
            }
        }
    });
    let mut closed = closed;
    tokio::select! {
        never = accepting => match never {},
        _ = closed.changed() => {}
    }
}

async fn answer(
    served: Arc<Served>,
    client: Arc<Client>,
    holder: Option<Holder>,
    request: Request<Incoming>,
) -> Response<Held<Body, Option<Busy>>> {
    let (parts, _) = request.into_parts();
    if let Err(denied) = served.reviewer.check(&served.node, holder.as_ref(), &parts, client.source()).await {
        let code = match denied {
            Denied::Unauthorized => StatusCode::UNAUTHORIZED,
            Denied::Forbidden { .. } => StatusCode::FORBIDDEN,
            Denied::Api(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        client.end();
        return held(text(code, denied.to_string()), None);
    }
    // Only components of the cluster and administrators may use a node.
    let busy = client.proven(&Flow::unlimited());
    if busy.is_none() {
        return held(text(StatusCode::TOO_MANY_REQUESTS, "too many connections are busy"), None);
    }
    let work = format!("kubelet request about node {}", served.node);
    let mistake = || text(StatusCode::INTERNAL_SERVER_ERROR, "the bridge has made a mistake");
    held(panics::isolate(work, asked(&served, &parts)).await.unwrap_or_else(mistake), busy)
}

/// Answers here, or by the bridge that has the node.
async fn asked(served: &Served, parts: &Parts) -> Response<Body> {
    let Served { node, bridge, forwarder, .. } = served;
    let work = move |asked: KubeletRequest| async move {
        match forwarder.as_ref().zip(bridge.elsewhere(node)) {
            Some((forwarder, place)) => {
                forwarder.forward(node, &place, &asked, parts).await.map_err(ErrorResponse::from)
            }
            None => reply(bridge, node, asked, parts).await,
        }
    };
    answered(parts, work).await
}

/// Answers a request that another bridge has forwarded: here, wherever the node is.
pub(super) async fn forwarded(bridge: &Bridge, node: &str, parts: &Parts) -> Response<Body> {
    answered(parts, |asked| reply(bridge, node, asked, parts)).await
}

async fn answered<F>(parts: &Parts, reply: impl FnOnce(KubeletRequest) -> F) -> Response<Body>
where
    F: Future<Output = Result<Response<Body>, ErrorResponse>>,
{
    let answered = match request::parse(&parts.method, &parts.uri) {
        Ok(asked) => reply(asked).await,
        Err(RequestError::BadRequest(problem)) => return text(StatusCode::BAD_REQUEST, problem),
        Err(RequestError::BadMethod) => return text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
        Err(RequestError::NotFound) => return text(StatusCode::NOT_FOUND, "404 page not found"),
    };
    answered.unwrap_or_else(|problem| {
        let headers = problem.headers();
        let mut response = text(problem.code, problem.text);
        response.headers_mut().extend(headers);
        response
    })
}

async fn reply(
    bridge: &Bridge,
    node: &str,
    asked: KubeletRequest,
    parts: &Parts,
) -> Result<Response<Body>, ErrorResponse> {
    // Requests usually name the pod; the node knows which pod has the name now.
    let place = |namespace: String, pod, uid| {
        // The API server asks, and does not say for whom. A pod that does not read harms only its own namespace.
        let flow = Flow::of_namespace(&namespace);
        PodOnNode { node: node.to_owned(), namespace, pod, uid, flow }
    };
    counters::KUBELET_REQUESTS.one();
    match asked {
        KubeletRequest::Logs { namespace, pod, options } => {
            let stream = bridge.logs(place(namespace, pod, String::new()), options).await?;
            let body = StreamBody::new(stream.map_ok(Frame::data).boxed());
            Ok(with_type(StatusCode::OK, PLAIN, body.boxed_unsync()))
        }
        KubeletRequest::Connect { namespace, pod, uid, work } => {
            let backend = Arc::new(bridge.clone());
            let switched = streaming::upgrade(backend, place(namespace, pod, uid), work, parts, ()).await?;
            Ok(switched.map(|()| full(Bytes::new())))
        }
        other => {
            let (kind, body) = read::read(bridge, node, &other).await?;
            Ok(with_type(StatusCode::OK, kind, full(body.into())))
        }
    }
}
