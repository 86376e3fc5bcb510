//! One connection of a client of an API: TLS, then HTTP/1.1 or HTTP/2, with a timeout for everything. Does not
//! interpret requests and answers.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::coop;
use tokio_rustls::TlsAcceptor;

use super::lingering::Lingering;
use super::unsent::{Followed, Unsent};
use super::{Arrival, Busy, Gate, Kept, Source};
use apimachinery::flow::Flow;

/// Maximum number of concurrent requests on one HTTP/2 connection. A burst of them delays others; clients in Go open
/// another connection for more (golang.org/x/net/http2, `StrictMaxConcurrentStreams`).
///
/// Before they receive the SETTINGS, these clients assume 100 (`initialMaxConcurrentStreams`), which is why an API
/// server allows 100 (K8s apiserver `SecureServingInfo.Serve`). h2 refuses those above the limit with REFUSED_STREAM:
/// nothing was done, and the request may be repeated (RFC 9113, section 8.7). The SETTINGS are sent before every
/// refusal, so clients in Go repeat it at once, on another connection (`canRetryError`). They cannot repeat a body that
/// they cannot read again (`GetBody`), but client-go's bodies are bytes, which they can. A client that ignores the
/// limit is disconnected after 1,024 refusals (h2 `max_local_error_reset_streams`).
const STREAMS: u32 = 50;

/// Limits of buffered request bodies of one stream, and of all streams of a connection, in bytes.
const WINDOWS: (u32, u32) = (128 << 10, 256 << 10);
/// Limits of one answer that waits for the socket, and of one buffered HTTP/1.1 request, in bytes.
const BUFFERS: (usize, usize) = (64 << 10, 128 << 10);
/// Interval of pings to an HTTP/2 peer, and the timeout of its answer (as in Go's clients).
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));
/// Timeout for the last answer of a connection that is being closed.
const ENDING: Duration = Duration::from_secs(5);

/// Common state of the requests of one connection.
#[derive(Debug)]
pub struct Client {
    arrival: Arc<Arrival>,
    gate: Arc<Gate>,
    peer: IpAddr,
    kept: OnceLock<Arc<Kept>>,
    unsent: Arc<Unsent>,
    proven: Notify,
    ending: Notify,
    ends: AtomicBool,
}

impl Client {
    pub fn new(gate: Arc<Gate>, peer: IpAddr, arrival: Arc<Arrival>) -> Arc<Self> {
        let (proven, ending, ends) = (Notify::new(), Notify::new(), AtomicBool::new(false));
        Arc::new(Self { arrival, gate, peer, kept: OnceLock::new(), unsent: Arc::default(), proven, ending, ends })
    }

    /// The sender of this request is authenticated, and the connection counts for this user. The returned value belongs
    /// to the [answer](held); `None` if too many such connections are busy: the connection then ends with the answer.
    pub fn proven(&self, flow: &Flow) -> Option<Busy> {
        if let Some(kept) = self.kept.get() {
            return Some(kept.busy());
        }
        let Some(kept) = self.gate.keep(self.peer, flow) else {
            self.end();
            return None;
        };
        // Two first requests of HTTP/2 at once: the place of the other is released.
        let kept = self.kept.get_or_init(|| kept);
        self.arrival.proven();
        self.proven.notify_one();
        Some(kept.busy())
    }

    /// Source address of the connection.
    pub(crate) fn source(&self) -> Source {
        Source::of(self.peer)
    }

    /// Ends the connection after the answers under way (as an API server does for unauthenticated clients).
    pub fn end(&self) {
        // The peer may read the answers slowly: meanwhile others get the permit.
        self.arrival.rest();
        self.ends.store(true, Ordering::Relaxed);
        self.ending.notify_one();
    }

    /// Returns whether the last answer may still be lost, when the connection is to end.
    async fn over(&self) -> bool {
        let kept = async {
            loop {
                match self.kept.get() {
                    Some(kept) => return kept.over().await,
                    None => self.proven.notified().await,
                }
            }
        };
        tokio::select! {
            () = self.ending.notified() => true,
            // The place was given to another connection.
            () = kept => false,
            () = self.unsent.stalled(self.gate.patience.unread) => false,
        }
    }
}

/// Serves requests until the connection ends. `handler` is created for the client's certificate, which the TLS layer
/// has verified, and answers each request.
///
/// # Errors
/// The reason of the end; `TimedOut` if the peer was too slow.
pub async fn serve<M, H, F, B>(socket: TcpStream, tls: TlsAcceptor, client: Arc<Client>, make: M) -> io::Result<()>
where
    M: FnOnce(Option<&CertificateDer<'_>>) -> H,
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    super::prepare(&socket)?;
    super::probe(&socket)?;
    let arrival = Arc::clone(&client.arrival);
    arrival.within(socket.readable()).await?;
    arrival.turn().await;
    let socket = Lingering::new(socket);
    let at_once = socket.at_once();
    let tls = arrival.within(tls.accept(socket)).await?;
    let handler = make(tls.get_ref().1.peer_certificates().and_then(|chain| chain.first()));
    let service = service_fn(|request: Request<Incoming>| {
        // Pipelined requests must not be read after the last one: HTTP/1.1 has to be told so.
        let closes = request.version() <= Version::HTTP_11;
        let head = request.method() == Method::HEAD;
        let (client, at_once) = (Arc::clone(&client), at_once.clone());
        // In a separate box, which is freed after the answer was created: an unread answer keeps no memory for its
        // creation.
        let answer = if has_host(&request) { Some(Box::pin(handler(request))) } else { None };
        async move {
            let _work = client.arrival.work();
            let Some(answer) = answer else {
                client.end();
                return Ok(no_host());
            };
            let mut answer = answer.await;
            at_once.note(&answer);
            if closes && client.ends.load(Ordering::Relaxed) {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            if head {
                // HTTP/2 also sends bodies without a known length.
                if let Some(length) = answer.body().size_hint().exact() {
                    answer.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
                }
                return Ok(answer.map(|_| Followed::empty()));
            }
            Ok::<_, std::convert::Infallible>(answer.map(|body| client.unsent.follow(body)))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).max_buf_size(BUFFERS.1).header_read_timeout(client.gate.patience.idle);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_send_buf_size(BUFFERS.0)
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    let served = async {
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(tls), service));
        tokio::select! {
            biased;
            done = connection.as_mut() => return done.map_err(io::Error::other),
            // Requests may use up each step of the task.
            answers = coop::unconstrained(client.over()) => if !answers {
                at_once.set();
            },
        }
        connection.as_mut().graceful_shutdown();
        match tokio::time::timeout(ENDING, connection).await {
            Ok(done) => done.map_err(io::Error::other),
            Err(_) => Ok(()),
        }
    };
    arrival.within(served).await
}

/// Whether a request names its host exactly once (RFC 9112, section 3.2). HTTP/1.0 need not.
fn has_host<B>(request: &Request<B>) -> bool {
    request.version() != Version::HTTP_11 || request.headers().get_all(HOST).iter().count() == 1
}

fn no_host<B>() -> Response<Followed<B>> {
    let mut answer = Response::new(Followed::empty());
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// An answer with a guard that is dropped after its last byte.
pub fn held<B, G>(answer: Response<B>, guard: G) -> Response<Held<B, G>> {
    answer.map(|body| Held { body, _guard: guard })
}

/// See [`held`].
pub struct Held<B, G> {
    body: B,
    _guard: G,
}

impl<B: Body + Unpin, G: Unpin> Body for Held<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
