//! Writes the entries of one layer's tar below an empty directory, in the form overlayfs stacks.
//!
//! The archive is hostile input: names that climb, links that lead outside, endless content, floods of entries. All
//! file operations go through [`tree`], which cannot leave the directory; all other checks are counters. Does not know
//! digests or the source of the bytes.

mod meta;
mod path;
mod records;
mod sparse;
mod tree;
mod write;
pub mod xattr;

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
mod tests;

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use nix::sys::stat::{Mode, SFlag, UtimensatFlags, makedev, mknodat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::geteuid;
use tar::{Archive, Entry, EntryType, Header};

use crate::image::ImageError;
use crate::image::error::one_line;
use crate::image::limits::Limits;
use crate::sys::writeback::Writeback;
use meta::Meta;
use path::{Place, place, show, split};
use records::{Allowance, Bounded, Records};
use sparse::Sparse;
use tree::{Tree, is_dir};

/// Unpacks `layer` (a plain tar) below `root`, an existing empty directory that only this process uses.
/// Owners are kept when the process is root; otherwise everything belongs to the caller (for tests). Returns the folders
/// that no entry describes.
///
/// # Errors
/// [`ImageError::Entry`] names the first entry that cannot or must not be written; the directory is then to be
/// thrown away.
pub fn unpack(layer: impl Read, root: &Path, limits: &Limits) -> Result<Vec<String>, ImageError> {
    let tree = Tree::open(root).map_err(ImageError::io(root, "cannot open"))?;
    let mut unpacker = Unpacker {
        tree,
        limits,
        as_root: geteuid().is_root(),
        entries: 0,
        bytes: 0,
        dir_times: Vec::new(),
        buffer: vec![0; 128 * 1024],
        writeback: Writeback::default(),
    };
    let truncated = |error: io::Error| ImageError::Entry { entry: "(archive)".into(), why: one_line(error) };
    let allowance = Allowance::default();
    allowance.records();
    let mut archive = Archive::new(Bounded { tar: layer, allowance: allowance.clone() });
    for entry in archive.entries().map_err(truncated)? {
        allowance.content();
        let mut entry = entry.map_err(truncated)?;
        unpacker.entry(&mut entry, allowance.found())?;
        // The unread content must not count as records of the next entry.
        io::copy(&mut entry, &mut io::sink()).map_err(truncated)?;
        allowance.records();
    }
    unpacker.finish()
}

/// Where to write an entry.
#[derive(Clone, Copy)]
struct Target<'a> {
    kind: EntryType,
    path: &'a [u8],
    parent: &'a [&'a [u8]],
    name: &'a [u8],
}

struct Unpacker<'a> {
    tree: Tree,
    limits: &'a Limits,
    as_root: bool,
    entries: u64,
    bytes: u64,
    /// Times of directories, set last: every file made inside changes them.
    dir_times: Vec<(Vec<u8>, TimeSpec)>,
    buffer: Vec<u8>,
    writeback: Writeback,
}

impl Unpacker<'_> {
    fn entry(&mut self, entry: &mut Entry<'_, impl Read>, records: io::Result<Records>) -> Result<(), ImageError> {
        self.entries += 1;
        ImageError::bound(self.entries, self.limits.entries, || "number of entries of the layer".into())?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let mut name = entry.path_bytes().into_owned();
        let read = records.and_then(|records| Ok((Sparse::of(records.pax())?, records)));
        let (sparse, records) = read.map_err(|error| ImageError::Entry { entry: show(&name), why: one_line(error) })?;
        if let Some(long) = records.name() {
            name = long.to_vec();
        }
        if let Some(real) = sparse.as_ref().and_then(|sparse| sparse.name.clone()) {
            name = real;
        }
        let kind = kind_of(entry.header(), &name);
        self.bytes = self.bytes.saturating_add(sparse.as_ref().map_or(0, |sparse| sparse.size).max(entry.size()));
        ImageError::bound(self.bytes, self.limits.layer_bytes, || "size of the unpacked layer".into())?;
        let done = match place(&name)? {
            Place::Ignored => Ok(()),
            Place::Root => self.root(entry, kind, &records),
            Place::Opaque { dir } => self.opaque(&dir),
            Place::Whiteout { parent, name } => self.whiteout(&parent, name),
            Place::Entry { parent, name: last } => {
                self.write(entry, &records, sparse, Target { kind, path: &name, parent: &parent, name: last })
            }
        };
        done.map_err(|error| ImageError::Entry { entry: show(&name), why: explain(&error) })
    }

    fn root(&mut self, entry: &Entry<'_, impl Read>, kind: EntryType, records: &Records) -> io::Result<()> {
        if kind != EntryType::Directory {
            return Err(io::Error::other("the root of a layer must be a directory"));
        }
        let meta = Meta::of(entry, records)?;
        self.dir_times.push((Vec::new(), meta.mtime));
        let root = self.tree.root().try_clone()?;
        self.apply_dir(&root, &meta)
    }

    fn opaque(&mut self, dir: &[&[u8]]) -> io::Result<()> {
        let Some(dir) = self.hiding(dir)? else { return Ok(()) };
        xattr::set(dir.as_fd(), xattr::OPAQUE, b"y")
    }

    /// Opens the folder in which content of lower layers must be hidden; `None` if this layer has a file there, which
    /// hides all of it (containerd's archive/tar.go, `mkparent`).
    fn hiding(&mut self, dir: &[&[u8]]) -> io::Result<Option<Rc<OwnedFd>>> {
        match self.tree.dir(dir) {
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOTDIR) => Ok(None),
            dir => dir.map(Some),
        }
    }

    /// A whiteout speaks of the layers below, so what this layer itself put there stays.
    fn whiteout(&mut self, parent: &[&[u8]], name: &[u8]) -> io::Result<()> {
        let Some(parent) = self.hiding(parent)? else { return Ok(()) };
        match Tree::stat(&parent, name)? {
            Some(stat) if is_dir(&stat) => xattr::set(Tree::open_child(&parent, name)?.as_fd(), xattr::OPAQUE, b"y"),
            Some(_) => Ok(()),
            None => Ok(mknodat(&*parent, name, SFlag::S_IFCHR, Mode::empty(), makedev(0, 0))?),
        }
    }

    fn finish(mut self) -> Result<Vec<String>, ImageError> {
        for (path, mtime) in std::mem::take(&mut self.dir_times) {
            let done = match split(&path)?.split_last() {
                // A directory may have been replaced later by something else, with a time of its own.
                Some((name, parent)) => self.tree.dir(parent).and_then(|parent| match Tree::stat(&parent, name)? {
                    Some(stat) if is_dir(&stat) => set_time(&parent, name, mtime),
                    _ => Ok(()),
                }),
                None => set_time(self.tree.root(), b".", mtime),
            };
            done.map_err(|error| ImageError::Entry { entry: show(&path), why: explain(&error) })?;
        }
        Ok(self.tree.undescribed())
    }
}

/// Type of an entry. In archives from before POSIX a folder is a file whose name ends with a slash (Go's archive/tar,
/// `Reader.next`, as in Docker and containerd).
fn kind_of(header: &Header, name: &[u8]) -> EntryType {
    let is_old_folder = header.as_old().linkflag == [0] && name.ends_with(b"/");
    if is_old_folder { EntryType::Directory } else { header.entry_type() }
}

fn set_time(parent: &OwnedFd, name: &[u8], mtime: TimeSpec) -> io::Result<()> {
    Ok(utimensat(parent, name, &mtime, &mtime, UtimensatFlags::NoFollowSymlink)?)
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(nix::libc::ELOOP) => "its path runs in a circle of symbolic links".to_owned(),
        Some(nix::libc::ENOTDIR) => "a part of its path is not a directory".to_owned(),
        _ => one_line(error),
    }
}
