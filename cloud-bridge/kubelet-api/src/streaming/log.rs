//! A log as the messages of a WebSocket, for clients that cannot read a body as it comes (K8s
//! k8s.io/streaming/pkg/httpstream/wsstream/stream.go). What they send is ignored.

use std::convert::Infallible;

use async_tungstenite::tungstenite::Message;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use hyper::upgrade::Upgraded;

use super::wire::{self, SocketIn, SocketOut};
use crate::backend::LogStream;

/// Sends the log to its end, or until the client has gone.
pub(super) async fn serve(upgraded: Upgraded, log: LogStream, base64: bool) {
    let (mut out, mut client) = wire::websocket(upgraded).await;
    tokio::select! {
        sent = send(&mut out, log, base64) => {
            if sent.is_some() {
                let _ = wire::close(&mut out).await;
            }
        }
        () = gone(&mut client) => {}
    }
}

/// An empty message first, which tells the client that all is well, then what comes. None when nobody reads any more.
async fn send(out: &mut SocketOut, mut log: LogStream, base64: bool) -> Option<()> {
    out.send(message(Bytes::new(), base64)).await.ok()?;
    while let Some(part) = log.next().await {
        match part {
            Ok(bytes) => out.send(message(bytes, base64)).await.ok()?,
            Err(error) => {
                log::debug!("a log over a WebSocket: {error}");
                break;
            }
        }
    }
    Some(())
}

fn message(bytes: Bytes, base64: bool) -> Message {
    if base64 { Message::text(STANDARD.encode(bytes)) } else { Message::binary(bytes) }
}

/// Ends when the client has.
pub(super) async fn gone(client: &mut SocketIn) {
    async fn read(client: &mut SocketIn) -> Option<Infallible> {
        loop {
            client.next().await?.ok().filter(|message| !message.is_close())?;
        }
    }
    read(client).await;
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};
    use http::Request;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// All bytes that a client gets who asks for this protocol.
    async fn got(protocol: &str) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(4096);
        let answer = |request: Request<Incoming>| {
            let parts = request.into_parts().0;
            let log = stream::iter([Ok("ab".into())]).boxed();
            async move { Ok::<_, std::io::Error>(super::super::log(log, &parts).unwrap().map(|()| String::new())) }
        };
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(server), service_fn(answer))
            .with_upgrades();
        tokio::spawn(serving.map(drop));
        let ask = format!(
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocol}\r\n"
        );
        client.write_all(ask.as_bytes()).await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert!(got.starts_with(b"HTTP/1.1 101"));
        got
    }

    #[tokio::test]
    async fn a_log_is_an_empty_message_its_bytes_and_a_close() {
        assert!(got("").await.ends_with(b"\r\n\r\n\x82\x00\x82\x02ab\x88\x02\x03\xe8"));
        let text = got("sec-websocket-protocol: base64.binary.k8s.io\r\n").await;
        assert!(text.ends_with(b"\r\n\r\n\x81\x00\x81\x04YWI=\x88\x02\x03\xe8"));
        assert!(String::from_utf8_lossy(&text).contains("sec-websocket-protocol: base64.binary.k8s.io"));
    }
}
