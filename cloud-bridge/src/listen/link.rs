//! `GET /v1/link`: from an HTTP request with a node's certificate to a websocket that a session serves.

use async_tungstenite::WebSocketStream;
use async_tungstenite::tokio::TokioAdapter;
use async_tungstenite::tungstenite::handshake::derive_accept_key;
use async_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use bytes::Bytes;
use edge_protocol::frame::MAX_FRAME;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::Arrived;
use super::gather::Gather;
use super::identity::proven;
use super::status::Refusal;
use crate::pki::identity::Holder;

/// Answers 101 and hands the connection to the bridge once hyper has let go of it.
pub(super) async fn upgrade(
    mut request: Request<Incoming>,
    arrived: &Arrived,
    holder: Option<&Holder>,
) -> Result<Response<Full<Bytes>>, Refusal> {
    let Arrived { peer, arrival, door, coming_in } = arrived.clone();
    let (node, credential) = proven(&door, holder).await?;
    let accept = accept_key(request.headers())?;
    // Others may begin while this one waits for those before it.
    arrival.rest();
    let place = coming_in.acquire_owned().await.ok();
    let upgrading = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrading.await {
            Ok(upgraded) => {
                let stream = Gather::new(TokioAdapter::new(TokioIo::new(upgraded)));
                let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config())).await;
                door.bridge.serve(&node, credential, socket.split(), place).await;
            }
            Err(error) => log::info!("{peer}: node {node}: upgrade: {error}"),
        }
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend([
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ]);
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

/// Checks the handshake (RFC 6455, 4.2.1) and gives the answer to its key.
fn accept_key(headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    let has = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    if !has(header::CONNECTION, "upgrade") || !has(header::UPGRADE, "websocket") {
        return Err(Refusal::bad_request("a websocket upgrade is expected here"));
    }
    if !has(header::SEC_WEBSOCKET_VERSION, "13") {
        return Err(Refusal::bad_request("Sec-WebSocket-Version: 13 is expected"));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).ok_or_else(|| Refusal::bad_request("no Sec-WebSocket-Key"))?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|error| Refusal::internal(format!("accept key: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(version: &'static str) -> HeaderMap {
        [
            (header::CONNECTION, "keep-alive, Upgrade"),
            (header::UPGRADE, "WebSocket"),
            (header::SEC_WEBSOCKET_VERSION, version),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        ]
        .into_iter()
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .collect()
    }

    #[test]
    fn the_key_of_the_rfc_gets_the_answer_of_the_rfc() {
        assert_eq!(accept_key(&headers("13")).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn anything_but_an_upgrade_is_refused() {
        assert!(accept_key(&headers("12")).is_err());
        for name in [header::CONNECTION, header::UPGRADE, header::SEC_WEBSOCKET_KEY] {
            let mut headers = headers("13");
            headers.remove(name);
            assert!(accept_key(&headers).is_err());
        }
    }
}
