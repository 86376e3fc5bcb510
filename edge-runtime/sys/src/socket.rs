//! Unix sockets at paths of any length. Does not know their protocols.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use smol::Async;

use crate::files::unless_missing;

/// Listens at `path`, in place of what an earlier process left there. The socket is made as `.NAME` beside it and gets its
/// name when it has its mode and takes connections: bind(2) makes the file, but until listen(2) a client is refused.
///
/// # Errors
/// The folder does not allow it, or another folder is in the way.
pub fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let (folder, name) = parts(path)?;
    let mut unfinished = OsString::from(".");
    unfinished.push(name);
    let unfinished = inside(&folder, &unfinished);
    // A process that was killed may have left one.
    unless_missing(fs::remove_file(&unfinished))?;
    let made =
        make(&unfinished, mode).and_then(|listener| fs::rename(&unfinished, inside(&folder, name)).map(|()| listener));
    made.inspect_err(|_| {
        let _ = fs::remove_file(&unfinished);
    })
}

/// Connects without waiting; a socket file without a listener gives `ConnectionRefused`.
///
/// # Errors
/// The folder or the socket does not exist, or nothing listens there.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (folder, name) = parts(path)?;
    UnixStream::connect(inside(&folder, name))
}

/// Same as [`connect`], beside other tasks.
///
/// # Errors
/// Same as [`connect`].
pub async fn connect_beside(path: &Path) -> io::Result<Async<UnixStream>> {
    let (folder, name) = parts(path)?;
    Async::<UnixStream>::connect(inside(&folder, name)).await
}

fn make(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let made = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    socket::bind(made.as_raw_fd(), &UnixAddr::new(path)?)?;
    // Containers can write in some of the folders: a link that one puts in the socket's place is not followed.
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    fs::set_permissions(descriptor(&file), Permissions::from_mode(mode))?;
    socket::listen(&made, Backlog::MAXALLOWABLE)?;
    Ok(made.into())
}

fn parts(path: &Path) -> io::Result<(File, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((File::open(folder.unwrap_or(Path::new(".")))?, name))
}

/// `sun_path` holds 108 bytes, a node's root may be longer: the path goes through the open folder.
fn inside(folder: &File, name: &OsStr) -> PathBuf {
    descriptor(folder).join(name)
}

/// Path of an open file, valid while it is open (proc(5)).
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn paths_longer_than_the_kernel_allows() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(120));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("monitor.sock");
        assert!(connect(&path).is_err());
        let _first = listen(&path, 0o600).unwrap();
        let listener = listen(&path, 0o600).unwrap();
        connect(&path).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn socket_that_is_seen_takes_connections() {
        let dir = tempfile::tempdir().unwrap();
        let path = |round: u32| dir.path().join(format!("{round}.sock"));
        let (tell, told) = mpsc::sync_channel(0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200 {
                    tell.send(round).unwrap();
                    while let Err(error) = UnixStream::connect(path(round)) {
                        assert_eq!(error.kind(), io::ErrorKind::NotFound, "round {round}");
                        assert!(start.elapsed() < Duration::from_secs(60), "nothing listens in round {round}");
                    }
                }
                drop(tell);
            });
            let _listeners: Vec<_> = told.iter().map(|round| listen(&path(round), 0o600).unwrap()).collect();
        });
    }

    #[test]
    fn mode_is_exact_and_nothing_is_left_beside_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let (path, unfinished) = (dir.path().join("s"), dir.path().join(".s"));
        let other = dir.path().join("other");
        fs::write(&other, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let before = mode(&other);
        symlink(&other, &unfinished).unwrap();
        for wanted in [0o600, 0o660, 0o666] {
            let _listener = listen(&path, wanted).unwrap();
            assert_eq!(mode(&path), wanted);
        }
        assert_eq!((mode(&other), unfinished.symlink_metadata().is_err()), (before, true));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(listen(&path, 0o600).is_err(), "a folder is in the way");
        assert!(unfinished.symlink_metadata().is_err());
        assert!(listen(Path::new("/"), 0o600).is_err());
    }
}
