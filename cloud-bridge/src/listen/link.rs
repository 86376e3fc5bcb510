//! `GET /v1/link`: from an HTTP request with a node's certificate to a websocket that a session serves.

use async_tungstenite::WebSocketStream;
use async_tungstenite::tokio::TokioAdapter;
use async_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use bytes::Bytes;
use edge_protocol::frame::MAX_FRAME;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kubelet_api::websocket;

use super::context::Arrived;
use super::gather::Gather;
use super::identity::proven;
use super::status::Refusal;
use crate::pki::identity::Holder;

/// Answers 101 and passes the connection to the bridge after hyper has released it.
pub(super) async fn upgrade(
    mut request: Request<Incoming>,
    arrived: &Arrived,
    holder: Option<&Holder>,
) -> Result<Response<Full<Bytes>>, Refusal> {
    let Arrived { peer, arrival, context, coming_in } = arrived.clone();
    let (node, credential) = proven(&context, holder).await?;
    let handshake = websocket::handshake(request.headers()).map_err(Refusal::bad_request)?;
    // Others may start while this one waits for those before it.
    arrival.rest();
    let place = coming_in.acquire_owned().await.ok();
    let upgrading = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrading.await {
            Ok(upgraded) => {
                let stream = Gather::new(TokioAdapter::new(TokioIo::new(upgraded)));
                let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config())).await;
                context.bridge.serve(&node, peer.ip().to_canonical(), credential, socket.split(), place).await;
            }
            Err(error) => log::info!("{peer}: node {node}: upgrade: {error}"),
        }
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend(handshake);
    Ok(response)
}

/// Sizes for many idle connections: the library's defaults are 256 KiB of buffers each and messages of 64 MiB.
fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(1 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_FRAME)
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME))
}
