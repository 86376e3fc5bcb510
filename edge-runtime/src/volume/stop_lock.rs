//! The stop lock of a pod: one empty file on a tmpfs of its own, which all containers of the pod see.
//!
//! A lock belongs to an open file, so the kernel drops it with the last process that has it (flock(2)).

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::error::{At, PathError};
use super::layout::{PodLayout, mount_tmpfs};
use crate::paths::Paths;

const FILE: &str = "stop.lock";

/// One page: what containers write into the file must not fill the node's memory.
const OPTIONS: &str = "mode=0700,size=4k,nr_inodes=8";

/// Makes the file, unless it is there, and returns its path.
pub(super) fn make(layout: &PodLayout) -> Result<PathBuf, PathError> {
    let dir = layout.stop_lock();
    mount_tmpfs(&dir, OPTIONS)?;
    let file = dir.join(FILE);
    File::options().create(true).append(true).open(&file).at("create", &file)?;
    // Any user of a container may lock it.
    fs::set_permissions(&file, Permissions::from_mode(0o666)).at("set the mode of", &file)?;
    Ok(file)
}

/// Whether a process holds the lock. The test takes the lock for a moment, so it fails a process that does not wait for it.
pub fn is_held(paths: &Paths, uid: &str) -> bool {
    let file = PodLayout::new(paths, uid).stop_lock().join(FILE);
    // Without the file no process can have a lock on it.
    let Ok(file) = File::open(file) else { return false };
    matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, Errno::EAGAIN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_held_while_a_process_has_it() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        assert!(!is_held(&paths, "u"), "there is no file");
        let dir = PodLayout::new(&paths, "u").stop_lock();
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(FILE), "").unwrap();
        assert!(!is_held(&paths, "u"));
        for how in [FlockArg::LockShared, FlockArg::LockExclusive] {
            let lock = Flock::lock(File::open(dir.join(FILE)).unwrap(), how).unwrap();
            assert!(is_held(&paths, "u") && !is_held(&paths, "other"));
            drop(lock);
            assert!(!is_held(&paths, "u"));
        }
    }
}
