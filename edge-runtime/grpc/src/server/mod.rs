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
/// Calls that are handed over and not answered, of all connections.
const FLIGHTS: usize = 32;
/// Maximum time without a complete request. Clients make another connection when they need one.
const IDLE: Duration = Duration::from_secs(120);
/// Maximum time without a complete request for clients that end with their connection.
const LASTING: Duration = Duration::from_secs(365 * 86_400);
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

/// What connections share.
struct Shared {
    calls: mpsc::Sender<Call>,
    flights: Arc<Semaphore>,
    rooms: Rooms,
    /// Time after which a connection without a request ends.
    idle: Duration,
    /// A connection waits for a place.
    crowded: Notify,
}

/// Accepts connections forever, each in its own task in the current `LocalSet`.
///
/// Unread answers of all connections hold at most 4 MiB; answers without room are dropped, and their clients get
/// RESOURCE_EXHAUSTED. Code that builds long answers builds one at a time and yields after each, so that it is sent
/// before the next.
pub async fn serve(listener: UnixListener, calls: mpsc::Sender<Call>) {
    serve_with(listener, calls, IDLE).await;
}

/// Same as [`serve`], and a connection without requests stays, unless others wait for its place: sidecars of CSI drivers
/// exit when their connection ends (kubernetes-csi/csi-lib-utils connection `ExitOnConnectionLoss`).
pub async fn serve_lasting(listener: UnixListener, calls: mpsc::Sender<Call>) {
    serve_with(listener, calls, LASTING).await;
}

async fn serve_with(listener: UnixListener, calls: mpsc::Sender<Call>, idle: Duration) {
    let shared = Rc::new(Shared {
        calls,
        flights: Arc::new(Semaphore::new(FLIGHTS)),
        rooms: Rooms::default(),
        idle,
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
    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn connection_without_requests_ends_unless_it_lasts() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            for (idle, ends) in [(Duration::from_millis(100), true), (LASTING, false)] {
                let folder = tempfile::tempdir().expect("temp dir");
                let path = folder.path().join("s.sock");
                let listener = UnixListener::bind(&path).expect("a socket");
                let (calls, _waiting) = mpsc::channel(1);
                spawn_local(serve_with(listener, calls, idle));
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
