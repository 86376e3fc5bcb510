//! Where folders go that are too large to be deleted in passing: a rename takes them out of the way at once, a helper
//! process (the verb `sweep`) deletes them without holding the daemon. A crash leaves them for the next sweep.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::fcntl::{Flock, FlockArg};

use super::delete::{delete_some, delete_tree};
use super::files::{named, private_dir, rename_to_free, unless_missing, unmounted};

/// Entries deleted at once: what a usual pod leaves. A millisecond or two on a slow card.
const IN_PASSING: usize = 500;
/// Held by the one process that sweeps.
const LOCK: &str = ".lock";

#[derive(Debug)]
pub struct Trash {
    dir: PathBuf,
    waits: Cell<bool>,
}

impl Trash {
    /// `dir` lies on the file system of what will be thrown away.
    pub fn new(dir: PathBuf) -> Self {
        let waits = Cell::new(!items(&dir).is_empty());
        Self { dir, waits }
    }

    /// Removes `path` and all its content from view; a missing one is fine. Refuses while anything is mounted in it: a
    /// mount (a hostPath, an overlay) has data that must not be deleted.
    ///
    /// # Errors
    /// A mount is left, or the kernel refuses; the path is named.
    pub fn throw(&self, path: &Path) -> io::Result<()> {
        let Some(real) = unmounted(path)? else { return Ok(()) };
        if delete_some(&real, IN_PASSING).map_err(named(path))? {
            return Ok(());
        }
        self.keep(&real).map_err(named(path))
    }

    fn keep(&self, path: &Path) -> io::Result<()> {
        private_dir(&self.dir)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        rename_to_free(path, |number| self.dir.join(format!("{name}.{number}")))?;
        self.waits.set(true);
        Ok(())
    }

    /// Whether something waits for a sweep; asked once per sweep to start.
    pub fn take_waiting(&self) -> bool {
        self.waits.take()
    }
}

/// Deletes all that was thrown into `dir`, until nothing comes any more. Blocks: for a process of its own. Does
/// nothing while another process sweeps.
///
/// # Errors
/// Something could not be deleted; all other entries are.
pub fn sweep(dir: &Path) -> io::Result<()> {
    let Some(lock) = unless_missing(fs::File::create(dir.join(LOCK)))? else { return Ok(()) };
    let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return Ok(()) };
    loop {
        let items = items(dir);
        let mut result = Ok(());
        for item in &items {
            result = delete_tree(item).and(result);
        }
        if items.is_empty() || result.is_err() {
            return result;
        }
    }
}

fn items(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name() != LOCK).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(dir: &Path, files: usize) {
        fs::create_dir_all(dir.join("a/b")).unwrap();
        for file in 0..files {
            fs::write(dir.join(format!("a/b/{file}")), "").unwrap();
        }
    }

    #[test]
    fn little_goes_at_once_and_much_is_swept_later() {
        let temp = tempfile::tempdir().unwrap();
        let trash = Trash::new(temp.path().join("trash"));
        let pod = temp.path().join("pod");
        fill(&pod, 10);
        trash.throw(&pod).unwrap();
        assert!(!pod.exists() && !trash.take_waiting());
        trash.throw(&pod).unwrap();
        for _ in 0..2 {
            fill(&pod, 2 * IN_PASSING);
            trash.throw(&pod).unwrap();
            assert!(!pod.exists());
        }
        assert!(trash.take_waiting() && !trash.take_waiting());
        assert_eq!(items(&temp.path().join("trash")).len(), 2);
        // A daemon that starts finds what the last one left.
        assert!(Trash::new(temp.path().join("trash")).take_waiting());
        sweep(&temp.path().join("trash")).unwrap();
        assert!(items(&temp.path().join("trash")).is_empty());
        assert!(!Trash::new(temp.path().join("trash")).take_waiting());
    }

    #[test]
    fn sweeping_nothing_is_fine() {
        let temp = tempfile::tempdir().unwrap();
        sweep(&temp.path().join("trash")).unwrap();
    }
}
