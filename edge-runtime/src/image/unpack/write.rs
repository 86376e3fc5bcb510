//! Entries as files, folders, links and devices.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, mkdirat, mknodat};
use nix::unistd::{Gid, Uid, fchownat, linkat, symlinkat};
use tar::{Entry, EntryType};

use super::meta::{Meta, device};
use super::path::{show, split};
use super::records::Records;
use super::sparse::Sparse;
use super::tree::{Tree, is_dir, is_whiteout};
use super::{Target, Unpacker, set_time, xattr};

impl Unpacker<'_> {
    pub(super) fn write(
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

    pub(super) fn apply_dir(&mut self, dir: &OwnedFd, meta: &Meta) -> io::Result<()> {
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
}
