//! One connection of a pod: TLS, then requests one after another.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::body::Answered;
use super::handle::handle;
use super::pace::{Busy, Pace, Paced, drive};
use super::seat::Seat;

/// For the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes of a request's head, and of an answer that waits.
const BUFFER: usize = 32 << 10;

pub(super) async fn serve(seat: Seat, stream: TcpStream, tls: TlsAcceptor) {
    let stream = match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return log::debug!("a pod ends its connection: {error}"),
        Err(_) => return log::debug!("a pod does not complete its handshake"),
    };
    let pace = Rc::new(Pace::new(Rc::clone(&seat.is_idle)));
    let seat = Rc::new(seat);
    let stream = TokioIo::new(Paced::new(stream, Rc::clone(&pace)));
    let timed = Rc::clone(&pace);
    let service = service_fn(move |request: Request<Incoming>| {
        let (busy, seat) = (Busy::new(&timed), Rc::clone(&seat));
        async move {
            let answer = handle(&seat, request).await;
            Ok::<_, Infallible>(answer.map(|content| Answered::new(content, busy)))
        }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None::<Duration>)
        .max_buf_size(BUFFER)
        .serve_connection(stream, service);
    drive(connection, &pace).await;
}
