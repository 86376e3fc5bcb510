//! The socket, for root alone, and the lock that makes a second helper fail: it would take the socket away from the first.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sampan_sys::files::named;
use sampan_sys::socket;
use tokio::net::UnixListener;

/// The socket, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    _lock: File,
}

/// # Errors
/// Another helper listens there, or the folder does not allow it.
pub(crate) fn listen(path: &Path) -> io::Result<Listening> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    // The file stays when the helper ends: a lock on a deleted file is worthless.
    let lock =
        File::options().write(true).create(true).truncate(false).mode(0o600).open(beside).map_err(named(path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{}: another helper has it", path.display())));
        }
        Err(TryLockError::Error(error)) => return Err(named(path)(error)),
    }
    let listener = socket::listen(path, 0o600).map_err(named(path))?;
    listener.set_nonblocking(true)?;
    Ok(Listening { listener: UnixListener::from_std(listener)?, path: path.to_owned(), _lock: lock })
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The socket is removed while the lock is held, so no caller connects meanwhile.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_one_helper_runs_and_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("api.sock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            drop(std::os::unix::net::UnixListener::bind(&path).expect("left by another"));
            let first = listen(&path).expect("it is free");
            let mode = std::fs::metadata(&path).expect("a socket").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let second = listen(&path).map(drop).map_err(|error| error.kind());
            assert_eq!(second, Err(io::ErrorKind::AddrInUse));
            drop(first);
            assert!(!path.exists());
            listen(&path).expect("it is free again");
        });
    }
}
