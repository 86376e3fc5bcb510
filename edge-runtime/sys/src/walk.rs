//! Walks untrusted folder trees: depth first by open folders, so that a pass costs time linear in the number of entries
//! and memory linear in depth. Links are never followed, and limits stop a tree that was made to be expensive.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use nix::dir::{Dir, OwningIter};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

/// Flags with which a folder is opened to be walked.
pub const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Most folders in one another. Each that is open costs a descriptor (1,024 by default) and the C library's buffer of
/// 32 KiB. The deepest of honest trees have some sixty.
pub const DEEPEST: usize = 500;

/// Limits of one or several walks together.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Entries that may still be read.
    pub entries: u64,
    /// When to stop.
    pub until: Instant,
}

/// The bound at which a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    Entries,
    Depth,
    Time,
}

/// Why a walk did not reach its end.
#[derive(Debug)]
pub enum Stopped {
    Bound(Bound),
    Io(io::Error),
}

impl From<nix::errno::Errno> for Stopped {
    fn from(errno: nix::errno::Errno) -> Self {
        // Out of descriptors for a folder this deep.
        if errno == nix::errno::Errno::EMFILE { Self::Bound(Bound::Depth) } else { Self::Io(errno.into()) }
    }
}

/// A running walk. The caller takes entries with [`Walk::next_entry`] and enters folders with [`Walk::enter`]; their
/// entries come before the remaining ones of the folder around.
pub struct Walk<'a> {
    bounds: &'a mut Bounds,
    levels: Vec<Level>,
}

struct Level {
    name: CString,
    entries: OwningIter,
}

impl<'a> Walk<'a> {
    /// Begins in the folder `top`, which must be open for reading.
    ///
    /// # Errors
    /// It is not a folder.
    pub fn new(top: OwnedFd, bounds: &'a mut Bounds) -> io::Result<Self> {
        let top = Level { name: CString::default(), entries: Dir::from_fd(top)?.into_iter() };
        Ok(Self { bounds, levels: vec![top] })
    }

    /// Name of the next entry in [`Walk::folder`]; none when all has been seen.
    ///
    /// # Errors
    /// A limit is reached, or a folder cannot be read: [`Walk::leave`] skips its remaining entries.
    pub fn next_entry(&mut self) -> Result<Option<CString>, Stopped> {
        while let Some(level) = self.levels.last_mut() {
            match level.entries.next() {
                None => self.leave(),
                Some(entry) => {
                    let entry = entry?;
                    let name = entry.file_name();
                    if name == c"." || name == c".." {
                        continue;
                    }
                    let left = self.bounds.entries.checked_sub(1).ok_or(Stopped::Bound(Bound::Entries))?;
                    // A look at the clock is cheap beside reading a folder.
                    if left.is_multiple_of(64) && Instant::now() >= self.bounds.until {
                        return Err(Stopped::Bound(Bound::Time));
                    }
                    self.bounds.entries = left;
                    return Ok(Some(name.to_owned()));
                }
            }
        }
        Ok(None)
    }

    /// Goes into the folder `name` of the current one. One that is a link by now is not followed (`ELOOP`, `ENOTDIR`).
    ///
    /// # Errors
    /// It lies deeper than [`DEEPEST`], or cannot be opened.
    pub fn enter(&mut self, name: &CStr) -> Result<(), Stopped> {
        if self.levels.len() >= DEEPEST {
            return Err(Stopped::Bound(Bound::Depth));
        }
        let folder = openat(self.folder(), name, FOLDER, Mode::empty())?;
        self.levels.push(Level { name: name.to_owned(), entries: Dir::from_fd(folder)?.into_iter() });
        Ok(())
    }

    /// Skips the remaining entries of the current folder.
    pub fn leave(&mut self) {
        self.levels.pop();
    }

    /// The folder in which the last entry lies.
    #[allow(unsafe_code)]
    pub fn folder(&self) -> BorrowedFd<'_> {
        let open = self.levels.last().map_or(nix::libc::AT_FDCWD, |level| level.entries.as_raw_fd());
        // SAFETY: the stream of the level owns the descriptor and lives as long as the borrow of `self`; `AT_FDCWD` is
        // never closed, and no entry is looked at after the last folder was left.
        unsafe { BorrowedFd::borrow_raw(open) }
    }

    /// Where the current folder lies below the top, for messages.
    pub fn path(&self) -> PathBuf {
        self.levels.iter().skip(1).map(|level| std::ffi::OsStr::from_bytes(level.name.to_bytes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use nix::fcntl::open;
    use nix::sys::stat::{SFlag, fstatat};

    use super::*;

    fn bounds(entries: u64) -> Bounds {
        Bounds { entries, until: Instant::now() + Duration::from_secs(60) }
    }

    /// Names of all that is found, in order of the alphabet.
    fn seen(top: &std::path::Path, bounds: &mut Bounds) -> Result<Vec<String>, Stopped> {
        let mut walk = Walk::new(open(top, FOLDER, Mode::empty())?, bounds).map_err(Stopped::Io)?;
        let mut found = Vec::new();
        while let Some(name) = walk.next_entry()? {
            found.push(walk.path().join(name.to_str().unwrap()).display().to_string());
            let meta = fstatat(walk.folder(), name.as_c_str(), nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if SFlag::from_bits_truncate(meta.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR {
                walk.enter(&name)?;
            }
        }
        found.sort();
        Ok(found)
    }

    #[test]
    fn every_entry_comes_once_and_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("a/b")).unwrap();
        fs::write(temp.path().join("a/b/c"), "").unwrap();
        fs::write(temp.path().join("d"), "").unwrap();
        std::os::unix::fs::symlink("/", temp.path().join("e")).unwrap();
        assert_eq!(seen(temp.path(), &mut bounds(5)).unwrap(), ["a", "a/b", "a/b/c", "d", "e"]);
        assert!(matches!(seen(temp.path(), &mut bounds(4)), Err(Stopped::Bound(Bound::Entries))));
        let mut late = Bounds { entries: 128, until: Instant::now() };
        for file in 0..70 {
            fs::write(temp.path().join(format!("f{file}")), "").unwrap();
        }
        assert!(matches!(seen(temp.path(), &mut late), Err(Stopped::Bound(Bound::Time))));
    }

    #[test]
    fn depth_is_bounded() {
        let temp = tempfile::tempdir().unwrap();
        let mut at = open(temp.path(), FOLDER, Mode::empty()).unwrap();
        for depth in 1..=DEEPEST {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            at = openat(&at, "d", FOLDER, Mode::empty()).unwrap();
            if depth == DEEPEST - 1 {
                assert_eq!(seen(temp.path(), &mut bounds(10_000)).unwrap().len(), depth);
            }
        }
        assert!(matches!(seen(temp.path(), &mut bounds(10_000)), Err(Stopped::Bound(Bound::Depth))));
        crate::delete::delete_tree(temp.path()).unwrap();
    }
}
