//! Deletes folder trees with untrusted content: any depth, any names, links, and never across a mount.
//!
//! `remove_dir_all` of the standard library crosses mounts (it would empty a bind-mounted folder) and holds one
//! descriptor per level, which a container exhausts with `mkdir` and `cd` in a loop.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Entries read before they are deleted: bounds the memory that a full folder takes.
const BATCH: usize = 256;

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Deletes `top` and all in it; fine when it does not exist. A link is deleted, not followed.
///
/// # Errors
/// `EXDEV` when something is mounted inside (the mounted files are untouched); entries that the kernel refuses to
/// delete.
pub fn delete_tree(top: &Path) -> io::Result<()> {
    delete_some(top, usize::MAX).map(drop)
}

/// Same as [`delete_tree`], for about `budget` entries at most; returns whether `top` is gone. The rest may have moved
/// to the top of the tree.
///
/// # Errors
/// Same as [`delete_tree`].
pub fn delete_some(top: &Path, budget: usize) -> io::Result<bool> {
    let root = match open(top, FOLDER, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::ENOENT) => return Ok(true),
        Err(Errno::ENOTDIR | Errno::ELOOP) => return std::fs::remove_file(top).map(|()| true),
        Err(errno) => return Err(errno.into()),
    };
    if !empty(root, budget)? {
        return Ok(false);
    }
    std::fs::remove_dir(top).map(|()| true)
}

/// Same as [`delete_tree`], for the entry `name` of the folder `parent`.
///
/// # Errors
/// Same as [`delete_tree`].
pub fn delete_at(parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => {}
        Err(Errno::ENOENT) => return Ok(()),
        other => return Ok(other?),
    }
    empty(openat(parent, name, FOLDER, Mode::empty())?, usize::MAX)?;
    Ok(unlinkat(parent, name, UnlinkatFlags::RemoveDir)?)
}

/// Deletes about `budget` entries in a folder; whether none is left.
fn empty(root: OwnedFd, budget: usize) -> io::Result<bool> {
    let mut work = Work { root, lifted: 0, left: budget };
    loop {
        let batch = read_batch(&work.root)?;
        if batch.is_empty() {
            return Ok(true);
        }
        for (name, is_folder) in batch {
            let done = if is_folder { work.folder(&name)? } else { work.file(None, &name)? };
            if !done {
                return Ok(false);
            }
        }
    }
}

struct Work {
    root: OwnedFd,
    lifted: u64,
    left: usize,
}

impl Work {
    /// False when the budget is used up.
    fn spend(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    fn file(&mut self, dir: Option<&OwnedFd>, name: &CStr) -> io::Result<bool> {
        unlinkat(dir.unwrap_or(&self.root), name, UnlinkatFlags::NoRemoveDir)?;
        Ok(self.spend())
    }

    /// Deletes a folder one level at a time: deeper folders move up, so that depth does not cost stack or descriptors.
    fn folder(&mut self, name: &CStr) -> io::Result<bool> {
        match unlinkat(&self.root, name, UnlinkatFlags::RemoveDir) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            result => return result.map(|()| self.spend()).map_err(io::Error::from),
        }
        let inner = enter(&self.root, name)?;
        loop {
            let batch = read_batch(&inner)?;
            if batch.is_empty() {
                break;
            }
            for (deeper, is_folder) in batch {
                let done = if is_folder { self.lift(&inner, &deeper)? } else { self.file(Some(&inner), &deeper)? };
                if !done {
                    return Ok(false);
                }
            }
        }
        drop(inner);
        unlinkat(&self.root, name, UnlinkatFlags::RemoveDir)?;
        Ok(self.spend())
    }

    /// Moves a folder to the top under a free name; the kernel refuses to rename a mount point or across one.
    fn lift(&mut self, from: &OwnedFd, name: &CStr) -> io::Result<bool> {
        match unlinkat(from, name, UnlinkatFlags::RemoveDir) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            result => return result.map(|()| self.spend()).map_err(io::Error::from),
        }
        loop {
            self.lifted += 1;
            let free = CString::new(format!(".deleting-{}", self.lifted))?;
            match renameat(from, name, &self.root, free.as_c_str()) {
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                result => return result.map(|()| self.spend()).map_err(io::Error::from),
            }
        }
    }
}

/// Up to [`BATCH`] entries, each with whether it is a folder.
fn read_batch(dir: &OwnedFd) -> io::Result<Vec<(CString, bool)>> {
    let again = openat(dir, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut batch = Vec::new();
    for entry in Dir::from_fd(again)?.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let is_folder = match entry.file_type() {
            Some(kind) => kind == Type::Directory,
            // Not every file system tells.
            None => is_folder(dir, name)?,
        };
        batch.push((name.to_owned(), is_folder));
        if batch.len() == BATCH {
            break;
        }
    }
    Ok(batch)
}

fn is_folder(dir: &OwnedFd, name: &CStr) -> io::Result<bool> {
    let found = fstatat(dir, name, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}

fn enter(dir: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(dir, name, OpenHow::new().flags(FOLDER).resolve(resolve)) {
        // Before kernel 5.6. The callers unmount first; a mount of another file system is still seen.
        Err(Errno::ENOSYS) => {
            let inner = openat(dir, name, FOLDER, Mode::empty())?;
            let (outside, inside) = (nix::sys::stat::fstat(dir)?, nix::sys::stat::fstat(&inner)?);
            if outside.st_dev == inside.st_dev { Ok(inner) } else { Err(Errno::EXDEV.into()) }
        }
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn targets_of_links_are_not_deleted() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("keep/deep")).unwrap();
        let top = temp.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::create_dir_all(top.join(".deleting-1/x/y")).unwrap();
        fs::write(top.join("a/b/c/f"), "").unwrap();
        symlink("../keep", top.join("link")).unwrap();
        symlink("../../../keep", top.join("a/b/link")).unwrap();
        delete_tree(&top).unwrap();
        assert!(!top.exists() && temp.path().join("keep/deep").exists());
        delete_tree(&top).unwrap();
        symlink("keep", &top).unwrap();
        delete_tree(&top).unwrap();
        assert!(fs::symlink_metadata(&top).is_err() && temp.path().join("keep/deep").exists());
    }

    #[test]
    fn a_budget_is_kept_and_the_rest_goes_later() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("top");
        for folder in 0..20 {
            fs::create_dir_all(top.join(format!("a/{folder}/b"))).unwrap();
            for file in 0..30 {
                fs::write(top.join(format!("a/{folder}/b/{file}")), "").unwrap();
            }
        }
        let mut rounds = 0;
        while !delete_some(&top, 100).unwrap() {
            rounds += 1;
            assert!(rounds < 20);
        }
        assert!(rounds >= 6 && !top.exists(), "{rounds}");
    }

    #[test]
    fn depth_costs_no_descriptors() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("top");
        let deep = || {
            fs::create_dir(&top).unwrap();
            // Deeper than the usual limit of 1024 descriptors, and than any path can name.
            let mut current: OwnedFd = fs::File::open(&top).unwrap().into();
            for _ in 0..3000 {
                nix::sys::stat::mkdirat(&current, "d", Mode::S_IRWXU).unwrap();
                current = openat(&current, "d", FOLDER, Mode::empty()).unwrap();
            }
        };
        deep();
        delete_tree(&top).unwrap();
        assert!(!top.exists());
        deep();
        let parent: OwnedFd = fs::File::open(temp.path()).unwrap().into();
        fs::write(temp.path().join("file"), "").unwrap();
        symlink("top", temp.path().join("link")).unwrap();
        for name in [&b"link"[..], b"none", b"file", b"top", b"top"] {
            delete_at(&parent, name).unwrap();
        }
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
