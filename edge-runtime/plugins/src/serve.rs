//! A gRPC socket with the kubelet's name in one of its folders. Does not take it from a kubelet that runs.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use sampan_grpc::Call;
use sampan_sys::files::named;
use sampan_sys::socket;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::folder;
use crate::shared::Shared;

/// Name of each of the kubelet's sockets.
pub(crate) const SOCKET: &str = "kubelet.sock";
/// Until a socket that cannot be had is tried again; doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(60);
/// Between two looks whether our socket is still there.
const LOOK: Duration = Duration::from_secs(10);
/// Timeout for a kubelet to answer: one with a full queue is there, too.
const ANSWER: Duration = Duration::from_secs(2);

/// Serves in this folder for as long as the process is.
pub(crate) async fn serve(shared: &Rc<Shared>, folder: &Path, calls: mpsc::Sender<Call>) {
    let path = folder.join(SOCKET);
    let (what, mut pause) = (path.display().to_string(), PAUSE);
    loop {
        match listen(folder).await {
            Ok(listener) => {
                log::info!("serving at {what}");
                shared.serves(&path, true);
                shared.accepts(&what);
                let (taken, since) = (is_taken_away(&path), Instant::now());
                tokio::select! {
                    () = sampan_grpc::serve(listener, calls.clone()) => {}
                    () = taken => log::warn!("{what} was removed or replaced, and is made again"),
                }
                shared.serves(&path, false);
                pause = if since.elapsed() > PAUSE_AT_MOST { PAUSE } else { pause };
            }
            Err(error) => shared.refuses(&what, error),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_AT_MOST);
    }
}

/// Creates the folder if it is missing, and listens in it; replaces a stale socket. The socket is made under another name
/// first, so plugins that watch the folder see it only when it takes connections.
async fn listen(folder: &Path) -> io::Result<UnixListener> {
    folder::make(folder)?;
    if let Ok(opened) = folder::open(folder, SOCKET) {
        let is_stale = match timeout(ANSWER, UnixStream::connect(opened.path())).await {
            Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
            Ok(Ok(_)) | Err(_) => false,
        };
        if !is_stale {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another kubelet answers there; stop it, or set plugins.root to another folder",
            ));
        }
    }
    let path = folder.join(SOCKET);
    let listener = socket::listen(&path, 0o660).map_err(named(&path))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Returns when our socket was removed or replaced.
async fn is_taken_away(path: &Path) {
    let inode = || std::fs::symlink_metadata(path).map(|found| found.ino()).ok();
    let ours = inode();
    while inode() == ours {
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn stale_socket_is_replaced_and_one_of_a_kubelet_is_not() {
        let root = tempfile::tempdir().expect("temp dir");
        let folder = root.path().join("device-plugins");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let first = listen(&folder).await.expect("nothing is in the way");
            let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
            assert_eq!((mode(&folder), mode(&folder.join(SOCKET))), (0o750, 0o660));
            let refused = listen(&folder).await.expect_err("a kubelet answers");
            assert!(refused.to_string().contains("stop it, or set plugins.root"), "{refused}");
            drop(first);
            listen(&folder).await.expect("a stale one is replaced");
        });
    }
}
