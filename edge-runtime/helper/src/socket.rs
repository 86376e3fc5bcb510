//! The socket, for root alone, and the lock that makes a second helper fail: it would take the socket away from the first.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_sys::files::named;
use sampan_sys::socket;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

/// Longest note in the file of the lock, bytes: the id of a boot (random(4)).
const MAX_NOTE: u64 = 256;
/// Pause when no connection can be accepted, without free descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// The socket, for as long as this is there.
#[derive(Debug)]
pub struct Listening {
    listener: UnixListener,
    path: PathBuf,
    lock: File,
}

/// Listens at `path`, and holds its lock.
///
/// # Errors
/// Another helper listens there, or the folder does not allow it.
pub fn listen(path: &Path) -> io::Result<Listening> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    // The file stays when the helper ends: a lock on a deleted file is worthless.
    let lock = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(beside)
        .map_err(named(path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{}: another helper has it", path.display())));
        }
        Err(TryLockError::Error(error)) => return Err(named(path)(error)),
    }
    let listener = socket::listen(path, 0o600).map_err(named(path))?;
    listener.set_nonblocking(true)?;
    Ok(Listening { listener: UnixListener::from_std(listener)?, path: path.to_owned(), lock })
}

/// Writes the text into the file, unless it has it. Returns whether it was another one.
fn replace(mut file: &File, text: &str) -> io::Result<bool> {
    let mut before = Vec::new();
    file.take(MAX_NOTE).read_to_end(&mut before)?;
    if before == text.as_bytes() {
        return Ok(false);
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    Ok(true)
}

impl Listening {
    /// Notes this boot in the file of the lock. Returns whether no helper has noted it before.
    ///
    /// # Errors
    /// The note cannot be read or written.
    pub fn note_boot(&self) -> io::Result<bool> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        replace(&self.lock, &boot).map_err(named(&self.path))
    }

    /// Accepts the next caller.
    pub async fn caller(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    log::warn!("cannot accept callers: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }
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

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
    }

    #[test]
    fn only_one_helper_runs_and_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("x.sock");
        block_on(async {
            drop(std::os::unix::net::UnixListener::bind(&path).expect("left by another"));
            let first = listen(&path).expect("it is free");
            let mode = std::fs::metadata(&path).expect("a socket").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let second = listen(&path).map(drop).map_err(|error| error.kind());
            assert_eq!(second, Err(io::ErrorKind::AddrInUse));
            let (called, _) = tokio::join!(UnixStream::connect(&path), first.caller());
            called.expect("it listens");
            drop(first);
            assert!(!path.exists());
            listen(&path).expect("it is free again");
        });
    }

    #[test]
    fn boot_is_new_once() {
        let folder = tempfile::tempdir().expect("temp dir");
        let (path, lock) = (folder.path().join("x.sock"), folder.path().join("x.sock.lock"));
        let is_new = || block_on(async { listen(&path).expect("it is free").note_boot().expect("a note") });
        assert!(is_new());
        assert!(!is_new(), "another helper of this boot");
        std::fs::write(&lock, "of a boot before").expect("written");
        assert!(is_new());
        let note = std::fs::read_to_string(&lock).expect("a note");
        assert_eq!(note, std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("it is Linux"));
    }
}
