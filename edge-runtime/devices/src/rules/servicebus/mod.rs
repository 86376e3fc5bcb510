//! KubeEdge's servicebus for programs on this device: they POST `{"method", "targetURL", "payload"}` over HTTP to a
//! loopback address, and get the result of the rule's target. Clients are untrusted: limits apply to each and to all
//! together. This module does not know rules, or the way to the cloud.
//!
//! | file | owns |
//! |---|---|
//! | `request` | reads a request |
//! | `answer` | an answer as bytes |

mod answer;
mod request;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::MAX_BODY;
use sampan_sys::vec_map::VecMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::requests::Request;
use crate::bound::bound;
use answer::Answer;

/// Maximum number of connections. Beyond it, a new one replaces the oldest that still has to send a request, or does
/// not read its answer.
const CONNECTIONS: usize = 64;
/// Bytes of all long bodies at once.
const BODIES: usize = 2 * MAX_BODY;
/// Timeout for receiving a request, and for sending an answer.
const SAY: Duration = Duration::from_secs(10);
/// Timeout for the bridge's answer; the bridge gives the target half of it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for a client that gets an early answer to read it, and how many more bytes it may send.
const LINGER: (Duration, u64) = (Duration::from_millis(500), 1 << 20);
/// Pause when no connection can be accepted, without free descriptors.
const PAUSE: Duration = Duration::from_secs(1);

struct Shared {
    /// Connections that a new one may replace, the oldest first.
    spare: RefCell<VecMap<u64, AbortHandle>>,
    bodies: Arc<Semaphore>,
    requests: mpsc::Sender<Request>,
}

/// Serves forever, on this thread's set of local tasks.
pub async fn serve(address: SocketAddr, requests: mpsc::Sender<Request>) {
    let listener = bound(address, "programs with requests for rules").await;
    let bodies = Arc::new(Semaphore::new(BODIES));
    let shared = Rc::new(Shared { spare: RefCell::default(), bodies, requests });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut number = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if places.available_permits() == 0 && !shared.make_place() {
                    continue;
                }
                // Never closed.
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { continue };
                number += 1;
                let all = Rc::clone(&shared);
                // It does not run before this is done: all is on one thread.
                let task = tokio::task::spawn_local(async move {
                    let _place = place;
                    one(stream, number, &all).await;
                    all.spare.borrow_mut().remove(&number);
                });
                shared.spare.borrow_mut().insert(number, task.abort_handle());
            }
            Err(error) => {
                log::warn!("no program can be heard: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

impl Shared {
    /// False if no connection can be closed.
    fn make_place(&self) -> bool {
        let oldest = self.spare.borrow_mut().pop_first();
        oldest.map(|(_, task)| task.abort()).is_some()
    }

    /// Sends the request to the bridge, and waits for the result.
    async fn ask(&self, target: String, body: request::Body) -> Answer {
        let (answer, answered) = oneshot::channel();
        let request = Request { target, body: body.bytes, answer, room: body.room };
        if self.requests.send(request).await.is_err() {
            return Answer::new(503, "the helper ends");
        }
        match timeout(PATIENCE, answered).await {
            Ok(Ok(result)) => result.into(),
            Ok(Err(_)) => Answer::new(502, "nobody has answered: it may have been done"),
            Err(_) => Answer::new(504, "the bridge does not answer in time: it may have been done"),
        }
    }
}

/// Parses bytes as the whole input of a connection; for the fuzz target only.
pub(crate) fn fuzz_request(bytes: &[u8]) {
    let mut stream = tokio::io::join(bytes, tokio::io::sink());
    let bodies = Arc::new(Semaphore::new(BODIES));
    let asked = std::pin::pin!(request::read(&mut stream, &bodies));
    let asked = asked.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    let std::task::Poll::Ready(asked) = asked else { unreachable!("bytes in memory are there at once") };
    match asked {
        Ok(body) => {
            assert!(body.bytes.len() <= bytes.len().min(MAX_BODY), "no more than was sent");
            let _ = request::target(&body.bytes);
        }
        Err(Some(answer)) => assert!(answer.bytes().starts_with(b"HTTP/1.1 ")),
        Err(None) => {}
    }
    assert_eq!(bodies.available_permits(), BODIES, "all room is given back");
}

/// One request, and its answer.
async fn one(mut stream: TcpStream, number: u64, shared: &Shared) {
    let asked = timeout(SAY, request::read(&mut stream, &shared.bodies)).await;
    let spare = shared.spare.borrow_mut().remove(&number);
    let answer = match asked {
        Ok(Ok(body)) => match request::target(&body.bytes) {
            Some(target) => shared.ask(target, body).await,
            // In KubeEdge's words.
            None => Answer::new(400, "invalid params"),
        },
        Ok(Err(Some(answer))) => answer,
        Ok(Err(None)) => return,
        Err(_) => Answer::new(408, "the request does not come in time"),
    };
    if let Some(task) = spare {
        shared.spare.borrow_mut().insert(number, task);
    }
    // Ignores failures: the client may have left.
    let _ = timeout(SAY, stream.write_all(&answer.bytes())).await;
    let _ = stream.shutdown().await;
    // An end of the connection with bytes unread would take the answer away (RFC 9112, section 9.6).
    let (mut rest, mut chunk) = (stream.take(LINGER.1), [0; 4_096]);
    let _ = timeout(LINGER.0, async { while rest.read(&mut chunk).await.is_ok_and(|read| read > 0) {} }).await;
}
