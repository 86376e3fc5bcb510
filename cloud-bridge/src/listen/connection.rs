//! One HTTP/1.1 connection, with TLS or without. Knows the limits of an unauthenticated client, and does not interpret
//! requests.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::status::Refusal;
use crate::accept::{ARRIVAL, Arrival};
use apimachinery::panics;

/// Answers until the client disconnects, is idle for too long, or has used up its requests. A panic ends one request.
///
/// # Errors
/// The connection broke, or took longer than an arrival may.
pub(super) async fn serve<S, F>(
    stream: S,
    peer: SocketAddr,
    arrival: &Arrival,
    answer: impl Fn(Request<Incoming>) -> F,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(|request: Request<Incoming>| {
        let answer = panics::isolate(format!("request of {peer}"), answer(request));
        async move {
            let mistake = || Refusal::internal("the bridge has made a mistake").into_response();
            let answer = answer.await.unwrap_or_else(mistake);
            // The peer may read it slowly: meanwhile others get the permit.
            arrival.rest();
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ARRIVAL)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    arrival.within(async { connection.await.map_err(io::Error::other) }).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::io::AsyncWriteExt as _;
    use tokio::task::coop;
    use tokio::time::timeout;

    use super::*;
    use crate::accept::Gate;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn refused_connection_gives_its_turn_back_at_once() {
        let (gate, peer) = (Gate::new(), SocketAddr::from(([192, 0, 2, 1], 1)));
        let mut holders = Vec::new();
        let waiting = loop {
            let arrival = gate.admit(peer.ip()).unwrap();
            if coop::unconstrained(arrival.turn()).now_or_never().is_none() {
                break arrival;
            }
            holders.push(arrival);
        };
        let (mut client, server) = tokio::io::duplex(4096);
        client.write_all(b"GET / HTTP/1.1\r\nHost: bridge\r\n\r\n").await.unwrap();
        let refused = serve(server, peer, &holders[0], |_| async { Refusal::forbidden("no").into_response() });
        timeout(LONG, refused).await.unwrap().unwrap();
        timeout(LONG, waiting.turn()).await.expect("a turn, though the refused connection is still held");
    }
}
