//! Folders that containers can write to, and sockets in them. Nothing there is trusted.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{OFlag, open as open_file, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::geteuid;
use sampan_grpc::{Code, Status};
use sampan_sys::files::{named, unless_missing};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Most files of a folder that are looked at.
const MAX_FILES: usize = 256;
/// Timeout for a process that may listen at a socket.
const ANSWER: Duration = Duration::from_secs(1);

/// Creates a folder for root alone, unless it is there.
///
/// # Errors
/// The folder above does not allow it; names the path.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(named(folder))
}

/// A socket that stays the one it was, whatever becomes of its name.
#[derive(Debug)]
pub(crate) struct Opened(OwnedFd);

impl Opened {
    /// Path to connect to, valid while this exists (proc(5)).
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// The socket with this name directly in the folder: a link in its place leads nowhere.
///
/// # Errors
/// UNAVAILABLE: it does not exist now, or another user has made it.
pub(crate) fn open(folder: &Path, name: &str) -> Result<Opened, Status> {
    let unavailable = |why: &str| Status::new(Code::Unavailable, format!("{}: {why}", folder.join(name).display()));
    let failed = |errno: nix::Error| unavailable(errno.desc());
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let opened = open_file(folder, flags | OFlag::O_DIRECTORY, Mode::empty()).map_err(failed)?;
    let socket = openat(&opened, name, flags | OFlag::O_NOFOLLOW, Mode::empty()).map_err(failed)?;
    let seen = fstat(&socket).map_err(failed)?;
    if seen.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFSOCK.bits() {
        return Err(unavailable("it is no socket"));
    }
    if seen.st_uid != geteuid().as_raw() {
        return Err(unavailable("its owner is not root"));
    }
    Ok(Opened(socket))
}

/// Tells one socket from another that has its name later: inode, and when it was made. File systems give the number of an
/// inode that was freed to the next one.
pub(crate) type Identity = (u64, i64, i64);

/// Sockets of a folder, sorted by name. Names that begin with a dot are of sockets that are being made.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn sockets(folder: &Path) -> io::Result<Vec<(String, Identity)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(MAX_FILES) {
        let entry = entry?;
        // One that is removed meanwhile is not there.
        let Some(seen) = unless_missing(entry.metadata())? else { continue };
        let name = entry.file_name().into_string().unwrap_or_default();
        if seen.file_type().is_socket() && !name.is_empty() && !name.starts_with('.') {
            // Nothing that is done with a socket changes this time.
            found.push((name, (seen.ino(), seen.mtime(), seen.mtime_nsec())));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes sockets at which no process listens, except this one: plugins left them before the machine started.
pub(crate) async fn remove_stale(folder: &Path, except: &str) {
    // A folder that is missing has none.
    for (name, _) in sockets(folder).unwrap_or_default() {
        let Ok(opened) = open(folder, &name) else { continue };
        let is_stale = name != except
            && timeout(ANSWER, UnixStream::connect(opened.path()))
                .await
                .is_ok_and(|connected| connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused));
        if is_stale && let Err(error) = unless_missing(std::fs::remove_file(folder.join(&name))) {
            log::warn!("{}: {error}", folder.join(&name).display());
        }
    }
}

/// Splits the path of a socket into its folder and its name. The folder must be below `root`, also when all links are
/// followed.
///
/// # Errors
/// It is elsewhere; the text says so.
pub(crate) fn below(root: &Path, path: &str) -> Result<(PathBuf, String), String> {
    let elsewhere = || format!("the endpoint {path:?} is not below {}", root.display());
    let socket = Path::new(path);
    let name = socket.file_name().and_then(OsStr::to_str).ok_or_else(elsewhere)?;
    let folder = socket.parent().ok_or_else(elsewhere)?;
    let real = |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    if !crate::names::is_path(path) || !real(folder)?.starts_with(real(root)?) {
        return Err(elsewhere());
    }
    Ok((real(folder)?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use nix::fcntl::AT_FDCWD;
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;

    use super::*;

    #[test]
    fn only_a_socket_in_the_folder_is_called() {
        let outside = tempfile::tempdir().expect("temp dir");
        let folder = tempfile::tempdir().expect("temp dir");
        let _other = UnixListener::bind(outside.path().join("docker.sock")).expect("a socket");
        symlink(outside.path().join("docker.sock"), folder.path().join("link.sock")).expect("a link");
        std::fs::write(folder.path().join("file.sock"), "").expect("a file");
        for name in ["link.sock", "file.sock", "missing.sock"] {
            assert!(open(folder.path(), name).is_err_and(|status| status.code == Code::Unavailable), "{name}");
        }
        let listener = UnixListener::bind(folder.path().join("p.sock")).expect("a socket");
        let opened = open(folder.path(), "p.sock").expect("it is there");
        // Whatever is put in its place later.
        std::fs::remove_file(folder.path().join("p.sock")).expect("it is there");
        symlink(outside.path().join("docker.sock"), folder.path().join("p.sock")).expect("a link");
        drop(std::os::unix::net::UnixStream::connect(opened.path()).expect("it listens still"));
        drop(listener);
    }

    #[test]
    fn stale_sockets_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("temp dir");
        for name in ["kubelet.sock", "a.sock", "b.sock", ".c.sock"] {
            drop(UnixListener::bind(folder.path().join(name)).expect("a socket"));
        }
        std::fs::write(folder.path().join("kubelet_internal_checkpoint"), "").expect("a file");
        let names = || sockets(folder.path()).expect("read").into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(), ["a.sock", "b.sock", "kubelet.sock"]);
        let _alive = UnixListener::bind(folder.path().join("alive.sock")).expect("a socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            remove_stale(folder.path(), "kubelet.sock").await;
            remove_stale(&folder.path().join("missing"), "kubelet.sock").await;
        });
        assert_eq!(names(), ["alive.sock", "kubelet.sock"]);
        assert!(folder.path().join("kubelet_internal_checkpoint").exists());
    }

    #[test]
    fn socket_that_is_made_again_is_another_one() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("p.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let identity = || sockets(folder.path()).expect("read").remove(0).1;
        let first = identity();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is there");
        drop((std::os::unix::net::UnixStream::connect(&path).expect("it listens"), listener));
        assert_eq!(identity(), first);
        // As if another one has got its inode.
        let (then, follow) = (TimeSpec::new(1, 2), UtimensatFlags::NoFollowSymlink);
        utimensat(AT_FDCWD, &path, &then, &then, follow).expect("it is there");
        assert_ne!(identity(), first);
    }

    #[test]
    fn endpoint_is_below_the_root() {
        let root = tempfile::tempdir().expect("temp dir");
        let outside = tempfile::tempdir().expect("temp dir");
        let inner = root.path().join("device-plugins");
        make(&inner).expect("a folder");
        make(&inner).expect("it is there");
        symlink(outside.path(), root.path().join("away")).expect("a link");
        let path = |text: &str| root.path().join(text).to_str().expect("UTF-8").to_owned();
        let (folder, name) = below(root.path(), &path("device-plugins/p.sock")).expect("below");
        assert_eq!((folder, name.as_str()), (inner.canonicalize().expect("it is there"), "p.sock"));
        for wrong in ["/run/docker.sock", "p.sock", "", "/", &path("away/p.sock"), &path("device-plugins/../p.sock")] {
            assert!(below(root.path(), wrong).is_err(), "{wrong}");
        }
        assert!(below(root.path(), &path("missing/p.sock")).is_err_and(|why| why.contains("No such file")));
    }
}
