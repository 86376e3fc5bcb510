//! Folders below the root, opened one after the other: links below the root are never followed. The root itself may be
//! one: it is the administrator's.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use sampan_sys::files::{mounts_below, named, replace, unless_missing, unless_there};
use sampan_sys::walk::FOLDER;

/// An open folder, and its path for messages.
#[derive(Debug)]
pub(super) struct Folder {
    opened: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder with this path below the root.
    ///
    /// # Errors
    /// One on the way is missing, a link, or not a folder; names it.
    pub(super) fn open(root: &Path, below: &Path) -> io::Result<Self> {
        Self::walk(root, below, false)
    }

    /// Opens the folder and makes what is missing, for root alone. New names are on the medium when this returns.
    ///
    /// # Errors
    /// A folder on the way is a link, not a folder, or cannot be made; names it.
    pub(super) fn make(root: &Path, below: &Path) -> io::Result<Self> {
        Self::walk(root, below, true)
    }

    fn walk(root: &Path, below: &Path, makes: bool) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = open(root, flags, Mode::empty()).map_err(io::Error::from).map_err(named(root))?;
        let mut folder = Self { opened, path: root.to_owned() };
        for name in below {
            let path = folder.path.join(name);
            let mut entered = openat(&folder.opened, name, FOLDER, Mode::empty());
            if makes && matches!(entered, Err(Errno::ENOENT)) {
                folder.create(name.as_bytes()).map_err(named(&path))?;
                entered = openat(&folder.opened, name, FOLDER, Mode::empty());
            }
            let opened = entered.map_err(no_folder).map_err(named(&path))?;
            folder = Self { opened, path };
        }
        Ok(folder)
    }

    /// Path of an entry that stays in this folder, whatever its own path leads to by now (proc(5)).
    fn at(&self, name: &[u8]) -> PathBuf {
        let folder = PathBuf::from(format!("/proc/self/fd/{}", self.opened.as_raw_fd()));
        folder.join(std::ffi::OsStr::from_bytes(name))
    }

    fn create(&self, name: &[u8]) -> io::Result<()> {
        unless_there(DirBuilder::new().mode(0o750).create(self.at(name)))?;
        self.sync()
    }

    /// Makes a folder in it, unless it is there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn add(&self, name: &str) -> io::Result<()> {
        self.create(name.as_bytes()).map_err(named(&self.path.join(name)))
    }

    fn sync(&self) -> io::Result<()> {
        File::from(self.opened.try_clone()?).sync_all()
    }

    /// Opens the folder with this name.
    ///
    /// # Errors
    /// It is missing, a link, or not a folder.
    pub(super) fn enter(&self, name: &str) -> io::Result<OwnedFd> {
        openat(&self.opened, name, FOLDER, Mode::empty()).map_err(no_folder).map_err(named(&self.path.join(name)))
    }

    /// Content of a file; `None` if it is missing.
    ///
    /// # Errors
    /// It is not a regular file, longer than `most`, or cannot be read.
    pub(super) fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let read = || {
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            let file = File::from(openat(&self.opened, name, flags, Mode::empty())?);
            let found = file.metadata()?;
            if !found.is_file() || found.len() > most {
                return Err(io::Error::other(format!("it is not a file of up to {most} bytes")));
            }
            let mut bytes = Vec::new();
            file.take(most).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        unless_missing(read()).map_err(named(&self.path.join(name)))
    }

    /// Writes a file, atomically. Its content and name are on the medium when this returns.
    ///
    /// # Errors
    /// The disk is full; nothing has changed.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        replace(&self.at(name.as_bytes()), bytes, true).map_err(named(&self.path.join(name)))
    }

    /// Removes a file, a link or an empty folder; a missing one is fine.
    ///
    /// # Errors
    /// A folder is not empty, or something is mounted on it.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.at(name.as_bytes());
        let removed = match std::fs::remove_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => std::fs::remove_file(&path),
            removed => removed,
        };
        unless_missing(removed).map(drop).map_err(named(&self.path.join(name)))
    }

    /// Removes a folder with all in it, but nothing that is mounted.
    ///
    /// # Errors
    /// Something is mounted in it.
    pub(super) fn remove_all(&self, name: &str) -> io::Result<()> {
        sampan_sys::delete::delete_tree(&self.at(name.as_bytes())).map_err(named(&self.path.join(name)))
    }

    /// Names of what is in it, up to `most`.
    ///
    /// # Errors
    /// There is more, or it cannot be read.
    pub(super) fn names(&self, most: usize) -> io::Result<Vec<String>> {
        let list = || {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(self.at(b""))? {
                // Nothing of ours has a name that is not UTF-8.
                names.extend(entry?.file_name().into_string().ok());
                if names.len() > most {
                    return Err(io::Error::other(format!("more than {most} entries")));
                }
            }
            Ok(names)
        };
        list().map_err(named(&self.path))
    }
}

/// Whether something is mounted at or below this path of the root. Looks at the table of mounts alone: a look at a mount
/// whose server does not answer would hang.
///
/// # Errors
/// The table cannot be read.
pub(super) fn is_mounted(root: &Path, path: &Path) -> io::Result<bool> {
    // The table has real paths.
    let path = root.canonicalize().map_err(named(root))?.join(path);
    Ok(!mounts_below(&path)?.is_empty())
}

/// A link in the place of a folder is ELOOP or ENOTDIR, by kernel.
fn no_folder(errno: Errno) -> io::Error {
    if errno == Errno::ELOOP { Errno::ENOTDIR } else { errno }.into()
}

/// Whether an entry is missing or not a folder: this process makes only folders.
pub(super) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn link_on_the_way_is_not_followed() {
        let (root, outside) = (tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir"));
        std::fs::create_dir(outside.path().join("uid")).expect("a folder");
        symlink(outside.path(), root.path().join("pods")).expect("a link");
        for made in [Folder::open, Folder::make] {
            let error = made(root.path(), Path::new("pods/uid")).expect_err("a link");
            assert!(is_nothing(&error) && error.to_string().contains("/pods"), "{error}");
        }
        assert!(Folder::make(root.path(), Path::new("pods/new")).is_err());
        assert_eq!(outside.path().read_dir().expect("read").count(), 1, "nothing was made behind the link");
        // The last name is not followed either.
        let folder = Folder::make(root.path(), Path::new("a/b")).expect("a folder");
        let victim = outside.path().join("victim");
        std::fs::write(&victim, "old").expect("a file");
        symlink(&victim, root.path().join("a/b/file")).expect("a link");
        assert!(folder.read("file", 100).is_err() && folder.enter("file").is_err());
        folder.write("file", b"new").expect("it replaces the link");
        assert_eq!(folder.read("file", 100).expect("a file").as_deref(), Some(&b"new"[..]));
        assert_eq!(std::fs::read(&victim).expect("a file"), b"old");
        symlink(outside.path(), root.path().join("a/b/link")).expect("a link");
        folder.remove("link").expect("the link alone");
        assert!(victim.exists());
    }

    #[test]
    fn files_and_folders_are_made_and_removed() {
        let root = tempfile::tempdir().expect("temp dir");
        assert!(Folder::open(root.path(), Path::new("a")).is_err_and(|error| is_nothing(&error)));
        let folder = Folder::make(root.path(), Path::new("a/b")).expect("a folder");
        Folder::make(root.path(), Path::new("a/b/c")).expect("a folder in it");
        assert_eq!(folder.read("missing", 1).expect("no error"), None);
        folder.write("file", b"12").expect("written");
        assert!(folder.read("file", 1).is_err_and(|error| error.to_string().contains("up to 1 bytes")));
        assert!(folder.read("c", 100).is_err(), "a folder is not a file");
        let mut names = folder.names(2).expect("two");
        names.sort();
        assert_eq!(names, ["c", "file"]);
        assert!(folder.names(1).is_err());
        std::fs::write(root.path().join("a/b/c/x"), "").expect("written");
        assert!(folder.remove("c").is_err(), "it is not empty");
        folder.remove_all("c").expect("all of it");
        for _ in 0..2 {
            folder.remove("file").expect("it is gone");
        }
        assert!(!is_mounted(root.path(), Path::new("a")).expect("a table"));
        assert!(is_mounted(Path::new("/"), Path::new("proc")).expect("a table"));
    }
}
