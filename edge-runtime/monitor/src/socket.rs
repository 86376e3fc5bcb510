//! Unix sockets at paths of any length. Knows nothing of the protocol.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use sampan_sys::files::unless_missing;

/// Listens at `path`, replacing what is there; only root may connect.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    unless_missing(fs::remove_file(path))?;
    let (_folder, short) = shorten(path)?;
    let listener = UnixListener::bind(short)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects without waiting; a socket file without a listener gives `ConnectionRefused`.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_folder, short) = shorten(path)?;
    UnixStream::connect(short)
}

/// `sun_path` holds 108 bytes, a node's root may be longer: go through an open folder.
fn shorten(path: &Path) -> io::Result<(File, PathBuf)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let folder = File::open(path.parent().ok_or_else(invalid)?)?;
    let name = path.file_name().ok_or_else(invalid)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    Ok((folder, short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_longer_than_the_kernel_allows() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(120));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("monitor.sock");
        assert!(connect(&path).is_err());
        let _first = bind(&path).unwrap();
        let listener = bind(&path).unwrap();
        connect(&path).unwrap();
        listener.accept().unwrap();
    }
}
