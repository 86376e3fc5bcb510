//! The way to a container's log folder, which leads through no link: a pod that may write to the folder of all logs (a
//! hostPath) could point it at any file of the node.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};

/// `POD/CONTAINER` below the folder of all logs; what is above is the administrator's, links included.
const OURS: usize = 2;

/// An open log folder.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// The folder that holds the file `log`.
    pub fn of(log: &Path) -> io::Result<Self> {
        Self::walk(log, false)
    }

    /// Same as [`Folder::of`]; creates what is missing.
    pub fn make(log: &Path) -> io::Result<Self> {
        Self::walk(log, true)
    }

    fn walk(log: &Path, make: bool) -> io::Result<Self> {
        let folder = log.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let top = folder.ancestors().nth(OURS).unwrap_or(Path::new("/"));
        if make {
            fs::create_dir_all(top)?;
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut at = open(top, flags, Mode::empty())?;
        for name in folder.strip_prefix(top).map_err(io::Error::other)?.components() {
            let name = Path::new(name.as_os_str());
            if make {
                match mkdirat(&at, name, Mode::from_bits_truncate(0o755)) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    // A folder that is there on a medium that takes nothing.
                    Err(Errno::EROFS | Errno::ENOSPC | Errno::EDQUOT | Errno::EIO) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            at = openat(&at, name, flags | OFlag::O_NOFOLLOW, Mode::empty())?;
        }
        Ok(Self(at))
    }

    /// A path that means this folder whatever happens to its name; good while this lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Opens a log for reading and, if asked to, for appending; then creates a missing one. Refuses links and pipes.
pub fn open_file(path: &Path, append: bool) -> io::Result<File> {
    let more = if append { OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT } else { OFlag::O_RDONLY };
    // A pipe put there must not block the open.
    let flags = more | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = File::from(open(path, flags, Mode::from_bits_truncate(0o640))?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_and_no_pipe_leads_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("pods");
        let log = logs.join("pod/c/0.log");
        let folder = Folder::make(&log).unwrap();
        let file = open_file(&folder.path().join("0.log"), true).unwrap();
        assert!(file.metadata().unwrap().is_file() && log.exists());
        let secret = dir.path().join("secret");
        fs::create_dir_all(secret.join("c")).unwrap();
        fs::write(secret.join("c/0.log"), "secret").unwrap();

        fs::remove_file(&log).unwrap();
        symlink(secret.join("c/0.log"), &log).unwrap();
        let through = |append| open_file(&Folder::of(&log)?.path().join("0.log"), append);
        assert!(through(false).is_err() && through(true).is_err(), "the file");
        fs::remove_file(&log).unwrap();
        nix::unistd::mkfifo(&log, Mode::S_IRWXU).unwrap();
        assert!(through(false).is_err() && through(true).is_err(), "a pipe");
        fs::remove_dir_all(logs.join("pod/c")).unwrap();
        symlink(secret.join("c"), logs.join("pod/c")).unwrap();
        assert!(through(false).is_err() && Folder::make(&log).is_err(), "the container's folder");
        fs::remove_dir_all(logs.join("pod")).unwrap();
        symlink(&secret, logs.join("pod")).unwrap();
        assert!(through(false).is_err() && Folder::make(&log).is_err(), "the pod's folder");
        // The administrator's own.
        let link = dir.path().join("link");
        fs::rename(&logs, dir.path().join("real")).unwrap();
        symlink(dir.path().join("real"), &link).unwrap();
        assert!(Folder::make(&link.join("other/c/0.log")).is_ok());
    }
}
