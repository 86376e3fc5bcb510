//! A watch as the messages of a WebSocket, each of them one event as text (K8s apiserver pkg/endpoints/handlers/watch.go
//! `HandleWS`). What clients send is ignored.

use async_tungstenite::tungstenite::{Message, Utf8Bytes};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use hyper::upgrade::Upgraded;

use super::log;
use super::wire::{self, SocketOut};

/// Sends the events to their end, or until the client has gone.
pub(super) async fn serve(upgraded: Upgraded, events: impl Stream<Item = Bytes> + Send) {
    let (mut out, mut client) = wire::websocket(upgraded).await;
    tokio::select! {
        sent = send(&mut out, events) => {
            if sent.is_some() {
                let _ = wire::close(&mut out).await;
            }
        }
        () = log::gone(&mut client) => {}
    }
}

/// None when nobody reads any more.
async fn send(out: &mut SocketOut, events: impl Stream<Item = Bytes> + Send) -> Option<()> {
    let mut events = std::pin::pin!(events);
    while let Some(lines) = events.next().await {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let text = Utf8Bytes::try_from(lines.slice_ref(line)).ok()?;
            out.send(Message::Text(text)).await.ok()?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};
    use http::Request;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// All bytes that a client gets who asks for these protocols.
    async fn got(protocols: &str) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(4096);
        let answer = |request: Request<Incoming>| {
            let parts = request.into_parts().0;
            let events = stream::iter(["{1}\n{2}\n".into(), "{3}\n".into()]);
            let answer = super::super::events(events, &parts, ());
            let answer = answer.map(|answer| answer.map(|()| String::new()));
            async move { answer.map_err(|problem| std::io::Error::other(problem.text)) }
        };
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(server), service_fn(answer))
            .with_upgrades();
        tokio::spawn(serving.map(drop));
        let ask = format!(
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocols}\r\n"
        );
        client.write_all(ask.as_bytes()).await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        got
    }

    #[tokio::test]
    async fn each_event_is_a_text_message() {
        let bytes = got("").await;
        assert!(bytes.starts_with(b"HTTP/1.1 101"));
        assert!(bytes.ends_with(b"\r\n\r\n\x81\x04{1}\n\x81\x04{2}\n\x81\x04{3}\n\x88\x02\x03\xe8"));
    }

    #[tokio::test]
    async fn only_protocol_of_a_client_is_agreed_to() {
        let one = got("sec-websocket-protocol: base64.binary.k8s.io\r\n").await;
        assert!(String::from_utf8_lossy(&one).contains("sec-websocket-protocol: base64.binary.k8s.io"));
        let two = got("sec-websocket-protocol: a, b\r\n").await;
        assert!(!two.starts_with(b"HTTP/1.1 101"));
    }
}
