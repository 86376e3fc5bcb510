//! The listener, with limits of connections for each process and for all.
//!
//! | file | owns |
//! |---|---|
//! | `door` | how many connections a process may make |
//! | `room` | memory for messages, and how much of it there is for all connections |
//! | `streams` | the requests of one connection, from their first field to the last byte of the answer |
//! | `exchange` | one connection without its socket |
//! | `flights` | calls that are not answered yet |
//! | `connection` | one connection: its socket, its clocks, its calls |

mod connection;
mod door;
pub(super) mod exchange;
mod flights;
pub(super) mod room;
mod streams;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use self::door::Door;
use self::room::Rooms;
use super::Status;

/// Connections at once: half of the files that the helper may have.
const CONNECTIONS: usize = 256;
/// Maximum time of a call at [`serve_lasting`].
pub const LASTING_CALL: Duration = Duration::from_secs(125);
/// Limits of [`serve`]: its clients make another connection when they need one.
const SHORT: Limits = Limits {
    idle: Duration::from_secs(120),
    request: streams::REQUEST,
    flight: Duration::from_secs(60),
    flights: 32,
    cancels: false,
};
/// Limits of [`serve_lasting`].
const LASTING: Limits = Limits {
    idle: Duration::from_secs(365 * 86_400),
    request: LASTING_CALL,
    flight: LASTING_CALL,
    flights: 8,
    cancels: true,
};
/// Pause when no connection can be accepted: without free descriptors, or without a free place.
const PAUSE: Duration = Duration::from_millis(200);

/// Process at the other end, according to the kernel (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub pid: Option<i32>,
    pub uid: u32,
}

/// A request as a whole.
#[derive(Debug)]
pub struct Call {
    /// `/package.Service/Method`.
    pub path: String,
    pub message: Vec<u8>,
    pub peer: Peer,
    /// Answers INTERNAL when dropped. Only a few calls may wait, so do not keep it for long. An answer after the
    /// client's deadline is discarded.
    pub reply: oneshot::Sender<Result<Vec<u8>, Status>>,
}

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum time of a connection without a complete request.
    idle: Duration,
    /// Maximum time for a request to be complete and answered.
    request: Duration,
    /// Time after which a call without an answer is given up.
    flight: Duration,
    /// Calls that are handed over and not answered, of all connections.
    flights: usize,
    /// Whether a call ends with its client.
    cancels: bool,
}

/// What connections share.
struct Shared {
    calls: mpsc::Sender<Call>,
    flights: Arc<Semaphore>,
    rooms: Rooms,
    limits: Limits,
    /// A connection waits for a place.
    crowded: Notify,
}

/// Accepts connections forever, each in its own task in the current `LocalSet`.
///
/// Unread answers of all connections hold at most 4 MiB; answers without room are dropped, and their clients get
/// RESOURCE_EXHAUSTED. Code that builds long answers builds one at a time and yields after each, so that it is sent
/// before the next.
pub async fn serve(listener: UnixListener, calls: mpsc::Sender<Call>) {
    serve_with(listener, calls, SHORT).await;
}

/// Same as [`serve`], and a connection without requests stays, unless others wait for its place: sidecars of CSI drivers
/// exit when their connection ends (kubernetes-csi/csi-lib-utils connection `ExitOnConnectionLoss`).
///
/// Eight calls at once have up to [`LASTING_CALL`] each, and others wait. A call ends with its client: its `reply` is
/// closed then, and the code that answers must drop the call.
pub async fn serve_lasting(listener: UnixListener, calls: mpsc::Sender<Call>) {
    serve_with(listener, calls, LASTING).await;
}

async fn serve_with(listener: UnixListener, calls: mpsc::Sender<Call>, limits: Limits) {
    let shared = Rc::new(Shared {
        calls,
        flights: Arc::new(Semaphore::new(limits.flights)),
        rooms: Rooms::default(),
        limits,
        crowded: Notify::new(),
    });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut door = Door::default();
    loop {
        let place = loop {
            match timeout(PAUSE, Arc::clone(&places).acquire_owned()).await {
                Ok(place) => break place,
                Err(_) => shared.crowded.notify_waiters(),
            }
        };
        match accept(&listener, &mut door).await {
            Ok(stream) => {
                let shared = Rc::clone(&shared);
                spawn_local(async move {
                    connection::serve(stream, &shared).await;
                    drop(place);
                });
            }
            Err(error) => {
                log::warn!("no gRPC connection can be taken: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// The next connection of a process within its limit. Others are closed without an answer.
async fn accept(listener: &UnixListener, door: &mut Door) -> io::Result<UnixStream> {
    loop {
        let (stream, _) = listener.accept().await?;
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).unwrap_or_default();
        if door.opens(pid, Instant::now()) {
            return Ok(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::{JoinHandle, LocalSet};

    use super::*;
    use crate::{Client, Code};

    /// A server with these limits, and a call that its client waits for as long as this.
    async fn called(limits: Limits, patience: Duration) -> (Call, JoinHandle<Result<Vec<u8>, Status>>) {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("s.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (sender, mut calls) = mpsc::channel(1);
        spawn_local(serve_with(listener, sender, limits));
        let client = spawn_local(async move {
            let mut client = Client::new(path);
            client.call("/a.B/C", b"x", patience).await
        });
        (calls.recv().await.expect("a call"), client)
    }

    #[test]
    fn call_is_answered_within_the_time_of_the_server() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            for (request, answer) in [(Duration::from_millis(200), None), (LASTING.request, Some(vec![1]))] {
                let (call, client) = called(Limits { request, ..LASTING }, Duration::from_secs(10)).await;
                sleep(Duration::from_millis(600)).await;
                // The client may have gone.
                let _ = call.reply.send(Ok(vec![1]));
                let answered = client.await.expect("no panic").map_err(|status| status.code);
                assert_eq!(answered, answer.ok_or(Code::DeadlineExceeded));
            }
        });
    }

    #[test]
    fn lasting_call_ends_with_its_client() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            for (limits, ends) in [(LASTING, true), (SHORT, false)] {
                let (mut call, client) = called(limits, Duration::from_millis(200)).await;
                let answered = client.await.expect("no panic").map_err(|status| status.code);
                assert_eq!(answered, Err(Code::DeadlineExceeded));
                let closed = timeout(Duration::from_secs(2), call.reply.closed()).await.is_ok();
                assert_eq!(closed, ends, "{limits:?}");
            }
        });
    }

    #[test]
    fn connection_without_requests_ends_unless_it_lasts() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            for (idle, ends) in [(Duration::from_millis(100), true), (LASTING.idle, false)] {
                let folder = tempfile::tempdir().expect("temp dir");
                let path = folder.path().join("s.sock");
                let listener = UnixListener::bind(&path).expect("a socket");
                let (calls, _waiting) = mpsc::channel(1);
                spawn_local(serve_with(listener, calls, Limits { idle, ..SHORT }));
                let mut client = UnixStream::connect(&path).await.expect("it listens");
                // The preface and empty settings.
                let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
                client.write_all(greeting).await.expect("it reads");
                let mut heard = Vec::new();
                let ended = timeout(Duration::from_secs(2), client.read_to_end(&mut heard)).await.is_ok();
                assert!(ended == ends && !heard.is_empty(), "{idle:?}: {heard:?}");
            }
        });
    }
}
