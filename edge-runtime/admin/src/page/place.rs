//! The socket of the page, and the lock that makes it one. Knows nothing of what is served.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use edge_runtime::cli::CliError;
use edge_runtime::paths::Paths;
use nix::fcntl::{Flock, FlockArg};
use sampan_sys::files::private_dir;
use sampan_sys::socket;
use smol::Async;

/// Held while the page is served; dropped, the socket is gone.
#[derive(Debug)]
pub(super) struct Place {
    socket: PathBuf,
    _lock: Flock<File>,
}

impl Place {
    /// Removes the socket of a killed process.
    ///
    /// # Errors
    /// Another one serves this root, or the socket cannot be made.
    pub(super) fn take(paths: &Paths) -> Result<(Self, Async<UnixListener>), CliError> {
        let (run, socket) = (paths.run(), paths.run().join("page.sock"));
        let failed = |path: &Path, error: std::io::Error| CliError::Failed(format!("{}: {error}", path.display()));
        private_dir(&run).map_err(CliError::from)?;
        let path = run.join("page.lock");
        let file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| failed(&path, error))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error.into() {
            error if std::io::Error::kind(&error) == ErrorKind::WouldBlock => {
                CliError::Failed(format!("the page of this node is served already: {}", socket.display()))
            }
            error => failed(&path, error),
        })?;
        let listener = socket::listen(&socket, 0o600).map_err(|error| failed(&socket, error))?;
        Ok((Self { socket, _lock: lock }, Async::new(listener)?))
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn socket_of_a_killed_process_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        private_dir(&paths.run()).unwrap();
        let path = paths.run().join("page.sock");
        drop(UnixListener::bind(&path).unwrap());
        let (place, _socket) = Place::take(&paths).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        let Err(CliError::Failed(why)) = Place::take(&paths) else { panic!("there are two") };
        assert!(why.contains("served already"), "{why}");
        assert!(path.exists(), "the second one takes nothing away");
        drop(place);
        assert!(!path.exists());
        Place::take(&paths).unwrap();
    }
}
