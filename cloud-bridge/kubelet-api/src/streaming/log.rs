//! A log as the messages of a WebSocket, for clients that cannot read a body as it comes (K8s
//! k8s.io/streaming/pkg/httpstream/wsstream/stream.go).

use async_tungstenite::tungstenite::Message;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};

use crate::backend::LogStream;

/// An empty message first, which tells the client that all is well, then what comes, to its end or an error.
pub(super) fn messages(log: LogStream, base64: bool) -> impl Stream<Item = Message> + Send {
    let parts = log.scan((), |(), part| {
        let part = part.inspect_err(|error| log::debug!("a log over a WebSocket: {error}"));
        std::future::ready(part.ok())
    });
    stream::iter([Bytes::new()]).chain(parts).map(move |bytes| message(bytes, base64))
}

fn message(bytes: Bytes, base64: bool) -> Message {
    if base64 { Message::text(STANDARD.encode(bytes)) } else { Message::binary(bytes) }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use futures::{StreamExt, stream};
    use http::request::Parts;

    use crate::streaming::messages::tests::got;

    async fn log(protocol: &str) -> Vec<u8> {
        let answer = |parts: &_| crate::streaming::log(stream::iter([Ok("ab".into())]).boxed(), parts, ());
        let got = got(protocol, answer).await;
        assert!(got.starts_with(b"HTTP/1.1 101"));
        got
    }

    #[tokio::test]
    async fn a_log_is_an_empty_message_its_bytes_and_a_close() {
        assert!(log("").await.ends_with(b"\r\n\r\n\x82\x00\x82\x02ab\x88\x02\x03\xe8"));
        let text = log("sec-websocket-protocol: base64.binary.k8s.io\r\n").await;
        assert!(text.ends_with(b"\r\n\r\n\x81\x00\x81\x04YWI=\x88\x02\x03\xe8"));
        assert!(String::from_utf8_lossy(&text).contains("sec-websocket-protocol: base64.binary.k8s.io"));
    }

    #[tokio::test]
    async fn log_over_a_socket_keeps_its_place_to_the_end() {
        let place = Arc::new(());
        let (kept, place) = (Arc::downgrade(&place), Mutex::new(Some(place)));
        let seen = kept.clone();
        let answer = move |parts: &Parts| {
            let seen = seen.clone();
            let log =
                stream::once(async move { Ok(Bytes::from(if seen.strong_count() == 1 { "kept" } else { "lost" })) });
            crate::streaming::log(log.boxed(), parts, place.lock().unwrap().take())
        };
        assert!(got("", answer).await.ends_with(b"\x82\x04kept\x88\x02\x03\xe8"));
        while kept.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
