//! Deletes folder trees that strangers filled: any depth, any names, links, and never across a mount.
//!
//! `remove_dir_all` of the standard library crosses mounts (a bind mount of somebody's data would be emptied) and
//! holds one descriptor per level, which a container exhausts with `mkdir` and `cd` in a loop.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Deletes `top` and all in it; fine when it does not exist. A link is deleted, not followed.
///
/// # Errors
/// `EXDEV` when something is mounted inside (what lies behind it is untouched); what the kernel refuses to delete.
pub fn delete_tree(top: &Path) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let root = match open(top, flags, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTDIR | Errno::ELOOP) => return std::fs::remove_file(top),
        Err(errno) => return Err(errno.into()),
    };
    // One level at a time: what lies deeper moves up, so that depth costs neither stack nor descriptors.
    let mut number = 0u64;
    loop {
        let folders = delete_files(&root)?;
        if folders.is_empty() {
            break;
        }
        for folder in folders {
            let inner = enter(&root, &folder)?;
            for deeper in delete_files(&inner)? {
                lift(&inner, &deeper, &root, &mut number)?;
            }
            drop(inner);
            unlinkat(&root, folder.as_c_str(), UnlinkatFlags::RemoveDir)?;
        }
    }
    drop(root);
    std::fs::remove_dir(top)
}

/// Deletes all but folders, returns the folders' names.
fn delete_files(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let again = openat(dir, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut folders = Vec::new();
    let mut files = Vec::new();
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
        if is_folder { folders.push(name.to_owned()) } else { files.push(name.to_owned()) }
    }
    for name in files {
        unlinkat(dir, name.as_c_str(), UnlinkatFlags::NoRemoveDir)?;
    }
    Ok(folders)
}

fn is_folder(dir: &OwnedFd, name: &CStr) -> io::Result<bool> {
    let found = fstatat(dir, name, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}

fn enter(dir: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(dir, name, OpenHow::new().flags(flags).resolve(resolve)) {
        // Before kernel 5.6. The callers unmount first; a mount of another file system is still seen.
        Err(Errno::ENOSYS) => {
            let inner = openat(dir, name, flags, Mode::empty())?;
            let (outside, inside) = (nix::sys::stat::fstat(dir)?, nix::sys::stat::fstat(&inner)?);
            if outside.st_dev == inside.st_dev { Ok(inner) } else { Err(Errno::EXDEV.into()) }
        }
        result => Ok(result?),
    }
}

/// Moves a folder to the top under a free name; the kernel refuses to rename a mount point or across one.
fn lift(from: &OwnedFd, name: &CStr, root: &OwnedFd, number: &mut u64) -> io::Result<()> {
    match unlinkat(from, name, UnlinkatFlags::RemoveDir) {
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
        result => return Ok(result?),
    }
    loop {
        *number += 1;
        let free = CString::new(format!(".deleting-{number}"))?;
        match renameat(from, name, root, free.as_c_str()) {
            Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_folders_and_links_go_and_what_links_name_stays() {
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
    fn depth_costs_no_descriptors() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("top");
        fs::create_dir(&top).unwrap();
        // Deeper than the usual limit of 1024 descriptors, and than any path can name.
        let mut current: OwnedFd = fs::File::open(&top).unwrap().into();
        for _ in 0..3000 {
            nix::sys::stat::mkdirat(&current, "d", Mode::S_IRWXU).unwrap();
            current = openat(&current, "d", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        }
        drop(current);
        delete_tree(&top).unwrap();
        assert!(!top.exists());
    }
}
