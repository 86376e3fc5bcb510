//! File operations that cannot leave one directory. Every call uses a descriptor of the parent, which is resolved below
//! the root; the last part of a path is never followed. Does not know tar.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, major, minor, mkdirat};

use crate::sys::beneath::open_in_root;
use crate::sys::delete::delete_at;

/// A directory of which this is the only writer.
pub(super) struct Tree {
    root: Rc<OwnedFd>,
    /// The parent of the last entry: archives list a folder's files together.
    last: Option<(Vec<u8>, Rc<OwnedFd>)>,
    /// Folders that were made for what lies in them and that no entry has described so far, as far as there is room.
    undescribed: BTreeSet<Vec<u8>>,
    /// Bytes of their paths.
    noted: usize,
}

/// Bytes of paths that are remembered: of some ten thousand folders.
const MOST_NOTED: usize = 1 << 20;
/// Links on the way to a folder, as the kernel has it (path_resolution(7)).
const MOST_LINKS: u32 = 40;
/// Folders in folders that links may lead to.
const MOST_FOLDERS: usize = 256;

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC);

impl Tree {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let root = open(root, DIRECTORY.union(OFlag::O_NOFOLLOW), Mode::empty())?;
        Ok(Self { root: Rc::new(root), last: None, undescribed: BTreeSet::new(), noted: 0 })
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Descriptor of a directory below the root; missing parts are made with mode 0755.
    /// Symbolic links on the way are followed as if the root were `/`, where they lead to folders that are missing, too
    /// (containerd's archive.Apply resolves the parent with `fs.RootPath` and makes it).
    pub(super) fn dir(&mut self, parts: &[&[u8]]) -> io::Result<Rc<OwnedFd>> {
        if parts.is_empty() {
            return Ok(self.root.clone());
        }
        let path = parts.join(&b'/');
        if let Some((last, fd)) = &self.last
            && *last == path
        {
            return Ok(fd.clone());
        }
        let fd = match open_in_root(self.root.as_fd(), path.as_slice(), DIRECTORY) {
            Err(Errno::ENOENT) => self.make_dirs(parts)?,
            other => other?,
        };
        let fd = Rc::new(fd);
        self.last = Some((path, fd.clone()));
        Ok(fd)
    }

    /// An entry describes this folder.
    pub(super) fn described(&mut self, parent: &[&[u8]], name: &[u8]) {
        if !self.undescribed.is_empty() {
            self.undescribed.remove(&[parent, &[name]].concat().join(&b'/'));
        }
    }

    /// Returns the folders without an entry: overlayfs would show them with the owner and mode from here.
    pub(super) fn undescribed(self) -> Vec<String> {
        self.undescribed.into_iter().filter_map(|path| String::from_utf8(path).ok()).collect()
    }

    /// Opens the directory `parts` and creates missing ones. No other process changes the tree.
    fn make_dirs(&mut self, parts: &[&[u8]]) -> io::Result<OwnedFd> {
        let mut todo: VecDeque<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        let mut passed: Vec<(Vec<u8>, OwnedFd)> = Vec::new();
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            if part == b".." {
                passed.pop();
                continue;
            }
            if passed.len() == MOST_FOLDERS {
                return Err(Errno::ENAMETOOLONG.into());
            }
            let here = passed.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd());
            let is_link = match Self::stat(here, &part)? {
                Some(stat) => kind(&stat) == SFlag::S_IFLNK,
                None => {
                    mkdirat(here, part.as_slice(), Mode::from_bits_truncate(0o755))?;
                    let names = passed.iter().map(|(name, _)| name).chain([&part]);
                    let path = names.map(Vec::as_slice).collect::<Vec<_>>().join(&b'/');
                    if self.noted.saturating_add(path.len()) < MOST_NOTED {
                        self.noted += path.len();
                        self.undescribed.insert(path);
                    }
                    false
                }
            };
            if !is_link {
                let fd = openat(here, part.as_slice(), DIRECTORY.union(OFlag::O_NOFOLLOW), Mode::empty())?;
                passed.push((part, fd));
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::ELOOP.into());
            }
            let target = readlinkat(here, part.as_slice())?.into_vec();
            if target.starts_with(b"/") {
                passed.clear();
            }
            for part in target.split(|byte| *byte == b'/').rev().filter(|part| !part.is_empty() && *part != b".") {
                todo.push_front(part.to_vec());
            }
        }
        passed.pop().map_or_else(|| self.root.try_clone(), |(_, fd)| Ok(fd))
    }

    /// Returns the metadata of `name`; does not follow a link.
    pub(super) fn stat(parent: impl AsFd, name: &[u8]) -> io::Result<Option<FileStat>> {
        match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes whatever stands at `name`, a directory with all that is in it.
    pub(super) fn remove(&mut self, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        // The removed folder may be the cached parent of the last entry.
        self.last = None;
        delete_at(parent, name)
    }

    /// Makes a new file at `name`, where nothing may stand.
    pub(super) fn create(parent: &OwnedFd, name: &[u8]) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(parent, name, flags, Mode::from_bits_truncate(0o600))?))
    }

    /// Opens the directory at `name` itself, never one it links to.
    pub(super) fn open_child(parent: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
        Ok(openat(parent, name, DIRECTORY.union(OFlag::O_NOFOLLOW), Mode::empty())?)
    }
}

pub(super) fn is_dir(stat: &FileStat) -> bool {
    kind(stat) == SFlag::S_IFDIR
}

/// overlayfs' sign for "gone": a character device 0:0.
pub(super) fn is_whiteout(stat: &FileStat) -> bool {
    kind(stat) == SFlag::S_IFCHR && (major(stat.st_rdev), minor(stat.st_rdev)) == (0, 0)
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}
