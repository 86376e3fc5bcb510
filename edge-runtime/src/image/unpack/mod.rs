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
pub mod xattr;

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
mod tests;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use nix::fcntl::AtFlags;
use nix::sys::stat::{
    FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, makedev, mkdirat, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat, geteuid, linkat, symlinkat};
use tar::{Archive, Entry, EntryType, Header};

use crate::image::ImageError;
use crate::image::error::one_line;
use crate::image::limits::Limits;
use crate::sys::writeback::Writeback;
use meta::{Meta, device};
use path::{Place, place, show, split};
use records::{Allowance, Bounded, Records};
use sparse::Sparse;
use tree::{Tree, is_dir, is_whiteout};

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

    fn write(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        records: &Records,
        sparse: Option<Sparse>,
        target: Target<'_>,
    ) -> io::Result<()> {
        let (kind, name) = (target.kind, target.name);
        let parent = self.tree.dir(target.parent)?;
        let before = Tree::stat(&parent, name)?;
        let link = || records.link().map(<[u8]>::to_vec).or_else(|| entry.link_name_bytes().map(Cow::into_owned));
        if kind == EntryType::Link {
            return self.hard_link(link(), &parent, name);
        }
        let meta = Meta::of(entry, records)?;
        if kind == EntryType::Directory {
            self.tree.described(target.parent, name);
            return self.directory(&meta, target.path, &parent, name, before);
        }
        if before.is_some() {
            self.tree.remove(&parent, name)?;
        }
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let (mut file, size) = (Tree::create(&parent, name)?, entry.size());
                match sparse {
                    Some(sparse) => self.pieces(entry, sparse, &mut file)?,
                    None => self.content(entry, size, &mut file)?,
                }
                self.own(&parent, name, &meta)?;
                fchmod(&file, meta.mode)?;
                meta.set_xattrs(file.as_fd())?;
                self.writeback.finished(file);
                set_time(&parent, name, meta.mtime)
            }
            EntryType::Symlink => {
                let target = link().ok_or_else(|| io::Error::other("a link without a target"))?;
                symlinkat(&*target, &*parent, name)?;
                self.own(&parent, name, &meta)?;
                set_time(&parent, name, meta.mtime)
            }
            EntryType::Fifo | EntryType::Char | EntryType::Block => {
                let (kind, device) = device(entry)?;
                mknodat(&*parent, name, kind, Mode::from_bits_truncate(0o600), device)?;
                self.own(&parent, name, &meta)?;
                fchmodat(&*parent, name, meta.mode, FchmodatFlags::FollowSymlink)?;
                set_time(&parent, name, meta.mtime)
            }
            other => {
                Err(io::Error::other(format!("entries of type {:?} are not supported", char::from(other.as_byte()))))
            }
        }
    }

    fn directory(
        &mut self,
        meta: &Meta,
        path: &[u8],
        parent: &OwnedFd,
        name: &[u8],
        before: Option<nix::sys::stat::FileStat>,
    ) -> io::Result<()> {
        let replaces_lower = before.as_ref().is_some_and(is_whiteout);
        if !before.as_ref().is_some_and(is_dir) {
            if before.is_some() {
                self.tree.remove(parent, name)?;
            }
            mkdirat(parent, name, Mode::from_bits_truncate(0o700))?;
        }
        let dir = Tree::open_child(parent, name)?;
        if replaces_lower {
            xattr::set(dir.as_fd(), xattr::OPAQUE, b"y")?;
        }
        self.dir_times.push((path.to_vec(), meta.mtime));
        self.apply_dir(&dir, meta)
    }

    fn apply_dir(&mut self, dir: &OwnedFd, meta: &Meta) -> io::Result<()> {
        if self.as_root {
            nix::unistd::fchown(dir, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))?;
        }
        fchmod(dir, meta.mode)?;
        meta.set_xattrs(dir.as_fd())
    }

    /// The target is a path from the root of the layer and must be there already.
    fn hard_link(&mut self, target: Option<Vec<u8>>, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let target = target.ok_or_else(|| io::Error::other("a link without a target"))?;
        let mut parts = split(&target).map_err(|error| io::Error::other(error.to_string()))?;
        let missing = || io::Error::other(format!("its link target {:?} is not in the layer", show(&target)));
        let target_name = parts.pop().ok_or_else(missing)?;
        let from = self.tree.dir(&parts)?;
        let to_link = Tree::stat(&from, target_name)?.filter(|stat| !is_whiteout(stat)).ok_or_else(missing)?;
        if let Some(before) = Tree::stat(parent, name)? {
            if (before.st_dev, before.st_ino) == (to_link.st_dev, to_link.st_ino) {
                return Ok(());
            }
            self.tree.remove(parent, name)?;
        }
        // No AT_SYMLINK_FOLLOW: a link to a symbolic link is a second name of the link itself.
        Ok(linkat(&*from, target_name, parent, name, AtFlags::empty())?)
    }

    fn content(&mut self, entry: &mut impl Read, mut left: u64, file: &mut File) -> io::Result<()> {
        while left > 0 {
            // The reader of a cut archive just ends.
            let n = match entry.read(&mut self.buffer) {
                Ok(0) => return Err(io::Error::other("the archive ends inside it")),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            file.write_all(&self.buffer[..n])?;
            self.writeback.wrote(file, n);
            left = left.saturating_sub(n as u64);
        }
        Ok(())
    }

    /// The pieces of a sparse file at their places; the rest are holes.
    fn pieces(&mut self, entry: &mut impl Read, mut sparse: Sparse, file: &mut File) -> io::Result<()> {
        for (offset, length) in sparse.pieces(entry)? {
            file.seek(SeekFrom::Start(offset))?;
            self.content(&mut entry.take(length), length, file)?;
        }
        file.set_len(sparse.size)
    }

    /// Before the mode: changing the owner takes set-user-id bits and capabilities away.
    fn own(&self, parent: &OwnedFd, name: &[u8], meta: &Meta) -> io::Result<()> {
        if self.as_root {
            let (uid, gid) = (Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)));
            fchownat(parent, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        }
        Ok(())
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
