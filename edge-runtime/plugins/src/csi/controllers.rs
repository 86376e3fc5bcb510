//! Calls of controllers of CSI drivers, which come from the cloud through the daemon. Only the sockets of the configuration
//! are called, and only methods of a controller. Messages are passed on without reading them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sampan_grpc::{Code, MAX_MESSAGE, Status};
use sampan_sys::socket;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::call::call_at;
use super::controller_call::{parse, written};
use crate::connected::Place;
use crate::folder;
use crate::shared::Shared;

/// Timeout for a call as a whole, and for its answer to be taken.
const DEADLINE: Duration = Duration::from_secs(120);
/// Connections at once: as many calls as the link has streams.
const CONNECTIONS: usize = 64;
/// Calls of one controller at once: the others wait, before their messages are read.
const MAX_CALLS: usize = 8;
/// Longest first line, bytes.
const MAX_HEAD: u64 = 512;
/// Pause when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval of checks whether the daemon still waits for an answer.
const LOOK: Duration = Duration::from_secs(1);

/// The socket of a controller.
struct Controller {
    path: String,
    calls: Semaphore,
}

/// Controllers by their driver.
type Controllers = BTreeMap<String, Controller>;

/// Serves beside the socket of the daemon.
pub(crate) fn start(shared: &Rc<Shared>) {
    let path = shared.registrations.with_extension(sampan_plugins_control::CSI_SOCKET);
    match listen(&path) {
        // Another helper listens in place of this one.
        Ok(listener) => drop(spawn_local(accept(Rc::clone(shared), listener))),
        Err(error) => shared.refuses(&path.display().to_string(), error),
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = socket::listen(path, 0o600)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

async fn accept(shared: Rc<Shared>, listener: UnixListener) {
    let of = |path: &String| Controller { path: path.clone(), calls: Semaphore::new(MAX_CALLS) };
    let controllers = shared.settings.csi_controllers.iter().map(|(name, path)| (name.clone(), of(path)));
    let controllers: Rc<Controllers> = Rc::new(controllers.collect());
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, controllers) = (Rc::clone(&shared), Rc::clone(&controllers));
                spawn_local(async move {
                    serve(&shared, &controllers, stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                log::warn!("cannot accept calls for controllers of CSI drivers: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(shared: &Shared, controllers: &Controllers, stream: UnixStream) {
    let (read, mut write) = stream.into_split();
    let late = |_| Err(Status::new(Code::DeadlineExceeded, "no answer in time"));
    let answer = tokio::select! {
        answer = timeout(DEADLINE, answer(shared, controllers, BufReader::new(read))) => answer.unwrap_or_else(late),
        // Dropping the call closes its connection to the controller. Otherwise cancelled calls of a controller that hangs
        // would occupy all connections.
        () = gone(&write) => return,
    };
    let bytes = written(answer);
    // Without an end of its own the connection ends here, whether the daemon has read or not.
    if !matches!(timeout(DEADLINE, write.write_all(&bytes)).await, Ok(Ok(()))) {
        log::debug!("the caller did not read the answer of a CSI driver's controller");
    }
}

/// Returns when the daemon has closed the connection. It closes its sending half after each message, which does not count.
async fn gone(write: &OwnedWriteHalf) {
    loop {
        sleep(LOOK).await;
        if write.ready(Interest::WRITABLE).await.is_ok_and(|ready| ready.is_write_closed()) {
            return;
        }
    }
}

async fn answer(
    shared: &Shared,
    controllers: &Controllers,
    mut read: BufReader<OwnedReadHalf>,
) -> Result<Vec<u8>, Status> {
    let mut head = Vec::new();
    (&mut read).take(MAX_HEAD).read_until(b'\n', &mut head).await.map_err(broken)?;
    let (driver, path) = parse(head.strip_suffix(b"\n").unwrap_or_default())?;
    let unavailable = |why: String| Status::new(Code::Unavailable, why);
    let controller = controllers.get(driver).ok_or_else(|| unavailable(format!("{driver} has no controller here")))?;
    let _permit = controller.calls.acquire().await;
    let message = message(&mut read).await?;
    let (folder, name) = folder::below(&shared.settings.root, &controller.path).map_err(unavailable)?;
    call_at(&Place { folder, name }, path, &message).await
}

/// Reads the message: nothing is called if it is cut off.
async fn message(read: &mut BufReader<OwnedReadHalf>) -> Result<Vec<u8>, Status> {
    let length = read.read_u32().await.map_err(broken)?;
    if u64::from(length) > MAX_MESSAGE as u64 {
        let why = format!("a message of {length} bytes, where {MAX_MESSAGE} are allowed");
        return Err(Status::new(Code::ResourceExhausted, why));
    }
    let mut message = Vec::new();
    let count = read.take(length.into()).read_to_end(&mut message).await.map_err(broken)?;
    if u32::try_from(count) != Ok(length) {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(message)
}

fn broken(error: io::Error) -> Status {
    Status::new(Code::Unavailable, format!("the call is incomplete: {error}"))
}
