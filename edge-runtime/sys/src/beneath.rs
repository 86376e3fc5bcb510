//! Paths that somebody else can change, opened without leaving a folder (openat2(2), kernel 5.6).

use std::os::fd::{AsFd, OwnedFd};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// The path with `root` as its root: links lead to places below it, absolute ones too.
///
/// # Errors
/// What openat2(2) gives; `ENOSYS` before kernel 5.6.
pub fn open_in_root<P: ?Sized + NixPath>(root: impl AsFd, path: &P, flags: OFlag) -> Result<OwnedFd, Errno> {
    open(root, path, flags, ResolveFlag::RESOLVE_IN_ROOT)
}

/// The path below `folder`; one that leads out of it is refused (`EXDEV`).
///
/// # Errors
/// What openat2(2) gives; `ENOSYS` before kernel 5.6.
pub fn open_beneath<P: ?Sized + NixPath>(folder: impl AsFd, path: &P, flags: OFlag) -> Result<OwnedFd, Errno> {
    open(folder, path, flags, ResolveFlag::RESOLVE_BENEATH)
}

fn open<P: ?Sized + NixPath>(from: impl AsFd, path: &P, flags: OFlag, within: ResolveFlag) -> Result<OwnedFd, Errno> {
    let resolve = within | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    loop {
        match openat2(&from, path, how) {
            // A rename raced with the walk (openat2(2)): again.
            Err(Errno::EAGAIN) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_do_not_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("passwd"), "own").unwrap();
        symlink("/passwd", dir.path().join("link")).unwrap();
        let root = File::open(dir.path()).unwrap();
        if matches!(open_beneath(&root, "passwd", OFlag::O_RDONLY), Err(Errno::ENOSYS)) {
            return;
        }
        assert_eq!(
            std::io::read_to_string(File::from(open_in_root(&root, "link", OFlag::O_RDONLY).unwrap())).unwrap(),
            "own"
        );
        assert_eq!(open_beneath(&root, "link", OFlag::O_RDONLY).unwrap_err(), Errno::EXDEV);
        assert_eq!(open_beneath(&root, "../x", OFlag::O_RDONLY).unwrap_err(), Errno::EXDEV);
    }
}
