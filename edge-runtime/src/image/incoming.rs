//! The folder `incoming`: unfinished downloads and layers, and which process works on them. Does not know images
//! or registries.
//!
//! A process that works on an entry holds a lock on the file or folder itself. A killed process thus releases
//! everything, and an unlocked entry is a leftover. Finding an entry and taking it is one step under the lock of the
//! folder, which is held for a few renames and one commit at most: a pull of hours does not block garbage collection.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::image::ImageError;
use crate::sys::delete::delete_tree;
use crate::sys::files::{named, rename_to_free, unless_missing};

/// Held while entries are taken, layers appear or go, and records of images change.
pub type Lock = Flock<File>;

/// Begins the names of partial downloads.
pub(super) const BLOB: &str = "blob-";
/// Begins the names of notes on what a pull or import under way needs, see `wants`.
pub(super) const WANT: &str = "want-";
/// Begins the names of records of images that were removed and whose layers are to go.
pub(super) const DROP: &str = "drop-";
/// Prefix of folders to delete.
const GONE: &str = "gone-";
const LOCK: &str = "lock";

/// The folder of one node.
#[derive(Clone, Debug)]
pub struct Incoming {
    dir: PathBuf,
}

/// An entry that only this process works on, until this is dropped.
#[derive(Debug)]
pub struct Claim {
    pub path: PathBuf,
    pub held: Flock<File>,
}

impl Incoming {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits until no other process changes layers or records. The folder must exist.
    ///
    /// # Errors
    /// The lock's file cannot be opened.
    pub fn lock(&self) -> io::Result<Lock> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.dir.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
    }

    /// Opens a file to continue, or a new one. Waits while another process works on it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn claim_file(&self, name: &str) -> io::Result<Claim> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.dir.join(name);
        loop {
            let lock = self.lock()?;
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            if let Some(held) = take_or_wait(file, lock)? {
                return Ok(Claim { path, held });
            }
        }
    }

    /// Creates an empty folder. Waits while another process works on one of this name; moves remains of a dead process
    /// aside.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn claim_folder(&self, name: &str) -> io::Result<Claim> {
        let path = self.dir.join(name);
        loop {
            let lock = self.lock()?;
            if let Some(left) = unless_missing(File::open(&path))? {
                if let Some(held) = take_or_wait(left, lock)? {
                    // Under the lock again, so no other process can have taken it since.
                    let lock = self.lock()?;
                    self.set_aside(&path)?;
                    drop((held, lock));
                }
                continue;
            }
            fs::create_dir(&path)?;
            let made = File::open(&path)?;
            let held =
                Flock::lock(made, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| io::Error::from(error))?;
            return Ok(Claim { path, held });
        }
    }

    /// Puts a folder where the next sweep deletes it. The caller holds the lock.
    ///
    /// # Errors
    /// It cannot be renamed; a missing one is fine.
    pub fn set_aside(&self, path: &Path) -> io::Result<()> {
        let process = std::process::id();
        let moved = rename_to_free(path, |number| self.dir.join(format!("{GONE}{process}-{number}")));
        unless_missing(moved).map(drop)
    }

    /// Entries with this prefix.
    ///
    /// # Errors
    /// The folder cannot be read; a missing folder has no entries.
    pub fn entries(&self, prefix: &str) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in unless_missing(fs::read_dir(&self.dir))?.into_iter().flatten() {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
                paths.push(entry.path());
            }
        }
        Ok(paths)
    }

    /// Whether anything but the lock is there.
    pub fn has_entries(&self) -> bool {
        self.entries("").is_ok_and(|paths| paths.iter().any(|path| path.file_name().is_some_and(|name| name != LOCK)))
    }

    /// Sets aside what dead processes left incomplete, and downloads that were not continued for `keep`. Ignores notes.
    /// The caller holds the lock; [`Incoming::delete_gone`] follows without it.
    ///
    /// # Errors
    /// Something cannot be put aside; all the rest is.
    pub fn clear(&self, keep: Duration) -> io::Result<()> {
        let mut result = Ok(());
        for path in self.entries("")? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_note = [WANT, DROP, GONE].iter().any(|prefix| name.starts_with(prefix)) || name == LOCK;
            if is_note || is_claimed(&path) || (name.starts_with(BLOB) && !is_older(&path, keep)) {
                continue;
            }
            let done = if path.is_dir() { self.set_aside(&path) } else { fs::remove_file(&path) };
            result = result.and(done.map_err(named(&path)));
        }
        result
    }

    /// Deletes what was put aside. Takes as long as it takes, holding nothing but these folders.
    ///
    /// # Errors
    /// Something cannot be deleted; all the rest is.
    pub fn delete_gone(&self) -> io::Result<()> {
        let mut result = Ok(());
        for path in self.entries(GONE)? {
            let lock = self.lock()?;
            let held = File::open(&path).map(|dir| Flock::lock(dir, FlockArg::LockExclusiveNonblock));
            drop(lock);
            // Gone by now, or being deleted by another process.
            let Ok(Ok(_held)) = held else { continue };
            result = result.and(delete_tree(&path).map_err(named(&path)));
        }
        result
    }

    pub(super) fn error(&self, what: &'static str) -> impl FnOnce(io::Error) -> ImageError {
        ImageError::io(&self.dir, what)
    }
}

/// `None` after another process has released it: the file may have been replaced or deleted.
fn take_or_wait(file: File, lock: Lock) -> io::Result<Option<Flock<File>>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(Some(held)),
        Err((file, Errno::EWOULDBLOCK)) => {
            drop(lock);
            drop(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| io::Error::from(error))?);
            Ok(None)
        }
        Err((_, error)) => Err(error.into()),
    }
}

/// Whether a living process works on it. The caller holds the lock of the folder.
pub(super) fn is_claimed(path: &Path) -> bool {
    let taken = |file| Flock::lock(file, FlockArg::LockExclusiveNonblock).err().map(|(_, error)| error);
    File::open(path).is_ok_and(|file| taken(file) == Some(Errno::EWOULDBLOCK))
}

/// Uses the wall clock; after the clock was set back, nothing counts as old.
pub(super) fn is_older(path: &Path, than: Duration) -> bool {
    let age = fs::metadata(path).and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
    than.is_zero() || age.is_some_and(|age| age > than)
}
