//! What `kubectl exec`, `attach` and `port-forward` speak, on one side an HTTP request, on the other a node's records.
//!
//! | module | owns |
//! |---|---|
//! | `options` | pure: what a query asks for |
//! | `negotiate` | pure: the protocol that both sides share |
//! | `refusal` | pure: why a request is not upgraded |
//! | `session` | exec and attach |
//! | `forward` | port-forward |
//! | `log`, `events` | pure: a log and a watch as messages |
//! | `messages` | sends messages over a WebSocket |
//! | `proxy` | HTTP to a port of a pod |
//! | `status`, `resize` | pure: how a session ended, and its terminal's size |
//! | `spdy` | SPDY/3.1 |
//! | `wire` | the upgraded connection's bytes |
//! | `arriving` | how many bytes of messages wait |
//!
//! The embedded API and the kubelet API use the same code. They check the caller's rights themselves.

mod arriving;
mod events;
mod forward;
mod log;
mod messages;
mod negotiate;
pub mod options;
pub mod proxy;
mod refusal;
mod resize;
mod session;
mod spdy;
mod status;
mod wire;

use std::sync::Arc;

use async_tungstenite::tungstenite::Message;
use bytes::Bytes;
use futures::Stream;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
pub use hyper::upgrade::OnUpgrade;

use crate::backend::{KubeletBackend, LogStream, PodOnNode, SessionOptions};
use negotiate::Agreed;
pub use refusal::ErrorResponse;

/// What to do over the upgraded connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRequest {
    /// Exec or, without a command, attach.
    Session(SessionOptions),
    PortForward,
}

/// Begins the work at the node and answers 101, or says why not. The rest runs as a task of its own and ends with
/// the client's connection; what waits of the client counts for the flow of `pod`, and `place` is kept until then.
pub async fn upgrade(
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    work: StreamRequest,
    parts: &Parts,
    place: impl Send + 'static,
) -> Result<Response<()>, ErrorResponse> {
    let upgrading = || {
        let upgrading = parts.extensions.get::<OnUpgrade>().cloned();
        upgrading.ok_or_else(|| ErrorResponse::bad_request("this connection cannot be upgraded: use HTTP/1.1 over TLS"))
    };
    let name = format!("{}/{}", pod.namespace, pod.pod);
    match work {
        StreamRequest::Session(options) => {
            let (agreed, upgrading) = (negotiate::session(&parts.headers)?, upgrading()?);
            let flow = pod.flow.clone();
            // An exec without a command was refused when its query was read.
            let channels = if options.command.is_empty() {
                backend.attach(pod, options.clone()).await?
            } else {
                backend.exec(pod, options.clone()).await?
            };
            let answer = switch(&agreed);
            tokio::spawn(async move {
                match upgrading.await {
                    Ok(upgraded) => session::serve(upgraded, &agreed, channels, &options, &flow).await,
                    Err(error) => ::log::debug!("a session in {name}: upgrade: {error}"),
                }
                drop(place);
            });
            Ok(answer)
        }
        StreamRequest::PortForward => {
            let agreed = negotiate::port_forward(&parts.headers)?;
            let ports = if agreed.transport == negotiate::Transport::Socket {
                options::ports(parts.uri.query().unwrap_or_default()).map_err(ErrorResponse::bad_request)?
            } else {
                Vec::new()
            };
            let upgrading = upgrading()?;
            backend.connected(&pod.node)?;
            let answer = switch(&agreed);
            tokio::spawn(async move {
                match upgrading.await {
                    Ok(upgraded) => {
                        let client = (upgraded, agreed.transport, agreed.codec);
                        forward::serve(client, backend, pod, &ports).await;
                    }
                    Err(error) => ::log::debug!("forwarding to {name}: upgrade: {error}"),
                }
                drop(place);
            });
            Ok(answer)
        }
    }
}

/// Sends a log over a WebSocket if the client asks for one: 101, or why not. `place` is kept until the end.
pub fn log(stream: LogStream, parts: &Parts, place: impl Send + 'static) -> Result<Response<()>, ErrorResponse> {
    let Agreed { headers, version, .. } = negotiate::log(&parts.headers)?;
    tell("a log", log::messages(stream, version == negotiate::BASE64), headers, parts, place)
}

/// Sends a watch over a WebSocket: 101, or why not. Each item of the stream is one or more whole lines; `place` is kept until the
/// end.
pub fn events(
    stream: impl Stream<Item = Bytes> + Send + 'static,
    parts: &Parts,
    place: impl Send + 'static,
) -> Result<Response<()>, ErrorResponse> {
    let headers = negotiate::watch(&parts.headers)?;
    tell("a watch", events::messages(stream), headers, parts, place)
}

fn tell(
    what: &'static str,
    messages: impl Stream<Item = Message> + Send + 'static,
    headers: HeaderMap,
    parts: &Parts,
    place: impl Send + 'static,
) -> Result<Response<()>, ErrorResponse> {
    let upgrading = parts.extensions.get::<OnUpgrade>().cloned();
    let upgrading = upgrading.ok_or_else(|| ErrorResponse::bad_request("this connection cannot be upgraded"))?;
    tokio::spawn(async move {
        match upgrading.await {
            Ok(upgraded) => messages::serve(upgraded, messages).await,
            Err(error) => ::log::debug!("{what} over a WebSocket: upgrade: {error}"),
        }
        drop(place);
    });
    Ok(switching(headers))
}

/// Whether this is the request of a WebSocket.
pub fn wants_socket(parts: &Parts) -> bool {
    negotiate::wants_socket(&parts.headers)
}

fn switch(agreed: &Agreed) -> Response<()> {
    switching(agreed.headers.clone())
}

fn switching(headers: HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}
