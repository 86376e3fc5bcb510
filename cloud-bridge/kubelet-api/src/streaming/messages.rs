//! What is told over a WebSocket, message by message. What the client sends is ignored.

use apimachinery::flow::Flow;
use async_tungstenite::tungstenite::Message;
use futures::{Stream, StreamExt};
use hyper::upgrade::Upgraded;

use super::wire::{self, SocketOut};

/// Sends the messages to their end, or until the client has gone.
pub(super) async fn serve(upgraded: Upgraded, messages: impl Stream<Item = Message> + Send) {
    let (mut out, mut client) = wire::websocket(upgraded, wire::MAX_IGNORED, &Flow::unlimited()).await;
    tokio::select! {
        sent = send(&mut out, messages) => {
            if sent.is_some() {
                let _ = wire::close(&mut out).await;
            }
        }
        () = async { while let Ok(Some(_)) = wire::next_message(&mut client).await {} } => {}
    }
}

/// `None` when the client reads no more.
async fn send(out: &mut SocketOut, messages: impl Stream<Item = Message> + Send) -> Option<()> {
    let mut messages = std::pin::pin!(messages);
    while let Some(message) = messages.next().await {
        out.send(message).await.ok()?;
    }
    Some(())
}

#[cfg(test)]
pub(super) mod tests {
    use futures::FutureExt;
    use http::request::Parts;
    use http::{Request, Response};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::streaming::refusal::ErrorResponse;

    #[tokio::test]
    async fn client_that_says_much_is_left() {
        let answer = |parts: &Parts| crate::streaming::events(futures::stream::pending(), parts, ());
        // A binary message of 1 MiB begins.
        let said = [&[0x82_u8, 0xff][..], &(1_u64 << 20).to_be_bytes(), &[0; 4]].concat();
        let got = tokio::time::timeout(std::time::Duration::from_secs(10), exchange("", &said, answer)).await;
        assert!(got.is_ok_and(|got| got.starts_with(b"HTTP/1.1 101")));
    }

    /// All bytes that a client gets who asks `answer` for these protocols (a line of the header, or nothing).
    pub(crate) async fn got(
        protocols: &str,
        answer: impl Fn(&Parts) -> Result<Response<()>, ErrorResponse> + Send + 'static,
    ) -> Vec<u8> {
        exchange(protocols, &[], answer).await
    }

    /// Same for a client that also sends this.
    async fn exchange(
        protocols: &str,
        said: &[u8],
        answer: impl Fn(&Parts) -> Result<Response<()>, ErrorResponse> + Send + 'static,
    ) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(4096);
        let answer = move |request: Request<Incoming>| {
            let answer = answer(&request.into_parts().0).map(|answer| answer.map(|()| String::new()));
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
        client.write_all(&[ask.as_bytes(), said].concat()).await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        got
    }
}
