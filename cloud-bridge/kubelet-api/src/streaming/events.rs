//! A watch as the messages of a WebSocket, each of them one event as text (K8s apiserver pkg/endpoints/handlers/watch.go
//! `HandleWS`).

use async_tungstenite::tungstenite::{Message, Utf8Bytes};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};

/// Messages of whole lines, one or more at a time. Each message holds what its lines hold.
pub(super) fn messages(lines: impl Stream<Item = Bytes> + Send) -> impl Stream<Item = Message> + Send {
    lines.flat_map(|lines| {
        let line = |line: &[u8]| Utf8Bytes::try_from(lines.slice_ref(line)).ok().map(Message::Text);
        let messages: Vec<Message> = lines.split_inclusive(|byte| *byte == b'\n').filter_map(line).collect();
        stream::iter(messages)
    })
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use crate::streaming::messages::tests::got;

    async fn events(protocols: &str) -> Vec<u8> {
        let answer =
            |parts: &_| crate::streaming::events(stream::iter(["{1}\n{2}\n".into(), "{3}\n".into()]), parts, ());
        got(protocols, answer).await
    }

    #[tokio::test]
    async fn each_event_is_a_text_message() {
        let bytes = events("").await;
        assert!(bytes.starts_with(b"HTTP/1.1 101"));
        assert!(bytes.ends_with(b"\r\n\r\n\x81\x04{1}\n\x81\x04{2}\n\x81\x04{3}\n\x88\x02\x03\xe8"));
    }

    #[tokio::test]
    async fn only_protocol_of_a_client_is_agreed_to() {
        let one = events("sec-websocket-protocol: base64.binary.k8s.io\r\n").await;
        assert!(String::from_utf8_lossy(&one).contains("sec-websocket-protocol: base64.binary.k8s.io"));
        let two = events("sec-websocket-protocol: a, b\r\n").await;
        assert!(!two.starts_with(b"HTTP/1.1 101"));
    }
}
