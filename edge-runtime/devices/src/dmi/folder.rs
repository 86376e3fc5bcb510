//! The folder of DMI: our socket in it, and the way to the mappers' sockets. Containers can write there, so nothing in
//! it is trusted.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{OFlag, open as open_file, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use sampan_grpc::{Code, Status};
use sampan_sys::files::named;
use sampan_sys::socket;
use tokio::net::UnixListener;
use tokio::time::sleep;

use crate::twins::SOCKET;

/// Between two looks whether our socket is still there.
const LOOK: Duration = Duration::from_secs(10);

/// Creates the folder if it is missing, and listens in it at `dmi.sock`; replaces a stale socket.
///
/// # Errors
/// The folder does not allow it; names the path.
pub(super) fn listen(folder: &Path) -> io::Result<UnixListener> {
    if !folder.is_dir() {
        DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(named(folder))?;
    }
    let path = folder.join(SOCKET);
    // For root, and whichever group the folder is given to.
    let listener = socket::listen(&path, 0o660).map_err(named(&path))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Returns when our socket was removed or replaced: containers can do that.
pub(super) async fn is_taken_away(folder: &Path) {
    let inode = || std::fs::symlink_metadata(folder.join(SOCKET)).map(|found| found.ino()).ok();
    let ours = inode();
    while inode() == ours {
        sleep(LOOK).await;
    }
}

/// A socket that stays the one it was, whatever becomes of its name.
#[derive(Debug)]
pub(super) struct Opened(OwnedFd);

impl Opened {
    /// Path to connect to, valid while this exists (proc(5)).
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// The socket with this name directly in the folder: a link in its place leads nowhere.
///
/// # Errors
/// UNAVAILABLE: it does not exist now.
pub(super) fn open(folder: &Path, name: &str) -> Result<Opened, Status> {
    let unavailable = |why: &str| Status::new(Code::Unavailable, format!("{name}: {why}"));
    let failed = |errno: nix::Error| unavailable(errno.desc());
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let folder = open_file(folder, flags | OFlag::O_DIRECTORY, Mode::empty()).map_err(failed)?;
    let socket = openat(&folder, name, flags | OFlag::O_NOFOLLOW, Mode::empty()).map_err(failed)?;
    let kind = fstat(&socket).map_err(failed)?.st_mode & SFlag::S_IFMT.bits();
    if kind == SFlag::S_IFSOCK.bits() { Ok(Opened(socket)) } else { Err(unavailable("it is no socket")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::{UnixListener as Listener, UnixStream};

    use super::*;

    #[test]
    fn only_a_socket_in_the_folder_is_called() {
        let outside = tempfile::tempdir().expect("temp dir");
        let folder = tempfile::tempdir().expect("temp dir");
        let _other = Listener::bind(outside.path().join("docker.sock")).expect("a socket");
        symlink(outside.path().join("docker.sock"), folder.path().join("link.sock")).expect("a link");
        symlink(outside.path(), folder.path().join("away")).expect("a link");
        std::fs::write(folder.path().join("file.sock"), "").expect("a file");
        for name in ["link.sock", "file.sock", "missing.sock", "away/docker.sock"] {
            let opened = open(folder.path(), name);
            // One with a slash is never asked for: the name of a socket is one part of a path.
            if !name.contains('/') {
                assert!(opened.is_err_and(|status| status.code == Code::Unavailable), "{name}");
            }
        }
        let listener = Listener::bind(folder.path().join("m.sock")).expect("a socket");
        let opened = open(folder.path(), "m.sock").expect("it is there");
        drop(UnixStream::connect(opened.path()).expect("it listens"));
        // Whatever is put in its place later.
        std::fs::remove_file(folder.path().join("m.sock")).expect("it is there");
        symlink(outside.path().join("docker.sock"), folder.path().join("m.sock")).expect("a link");
        drop(UnixStream::connect(opened.path()).expect("it listens still"));
        drop(listener);
    }

    #[test]
    fn the_folder_is_made_and_a_socket_that_was_left_is_replaced() {
        let above = tempfile::tempdir().expect("temp dir");
        let folder = above.path().join("kubeedge");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            drop(listen(&folder).expect("nothing is in the way"));
            let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
            assert_eq!((mode(&folder), mode(&folder.join(SOCKET))), (0o750, 0o660));
            let listener = listen(&folder).expect("a stale one is replaced");
            UnixStream::connect(folder.join(SOCKET)).expect("it listens");
            drop(listener);
            std::fs::remove_file(folder.join(SOCKET)).expect("it is there");
            std::fs::create_dir(folder.join(SOCKET)).expect("something else");
            let error = listen(&folder).expect_err("a folder is in the way");
            assert!(error.to_string().contains("kubeedge/dmi.sock: "), "{error}");
            std::fs::write(above.path().join("file"), "").expect("a file");
            assert!(listen(&above.path().join("file")).is_err());
        });
    }
}
