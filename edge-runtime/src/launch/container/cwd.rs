//! Refuses working folders and programs of containers below `/proc`: there the OCI runtime's open files of the host are
//! visible (CVE-2024-21626). Old runtimes follow them, so this is a second check.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{SFlag, fstatat};

use crate::sys::beneath::open_in_root;

/// Maximum number of links followed, as in the kernel (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// Why a working folder is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} lies below /proc, where the files of the OCI runtime are, or cannot be followed: it is refused as working \
     directory and as program (workingDir and command of the container, WORKDIR and ENTRYPOINT of the image)"
)]
pub(super) struct Refused(String);

/// Same as [`check`], for the program of a container; one without a slash is searched in `PATH`.
///
/// # Errors
/// It lies below `/proc`.
pub(super) fn check_program(root: &Path, program: &str) -> Result<(), Refused> {
    if program.contains('/') { check(root, program) } else { Ok(()) }
}

/// Refuses a `cwd` that leads below `/proc`, by its name or through the links of the image at `root`.
///
/// # Errors
/// It does.
pub(super) fn check(root: &Path, cwd: &str) -> Result<(), Refused> {
    let refused = || Refused(cwd.chars().take(200).collect());
    let mut todo: VecDeque<OsString> = parts(Path::new(cwd));
    let mut here = PathBuf::new();
    let mut links = 0;
    while let Some(part) = todo.pop_front() {
        if part == ".." {
            here.pop();
            continue;
        }
        here.push(&part);
        if here.starts_with("proc") && here.components().count() > 1 {
            return Err(refused());
        }
        let target = match link(root, &here) {
            Ok(Some(target)) => target,
            Ok(None) => continue,
            // A missing path does not have links.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            // Whatever cannot be looked at may lead anywhere.
            Err(_) => return Err(refused()),
        };
        links += 1;
        if links > MOST_LINKS {
            return Err(refused());
        }
        here.pop();
        let target = PathBuf::from(target);
        if target.is_absolute() {
            here = PathBuf::new();
        }
        for part in parts(&target).into_iter().rev() {
            todo.push_front(part);
        }
    }
    Ok(())
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

/// Target of a link of the image; `None` if it is not a link. Only the last part of `path` may be a link.
fn link(root: &Path, path: &Path) -> io::Result<Option<OsString>> {
    let root = File::open(root)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let parent = open_in_root(&root, parent, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
    let found = fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFLNK {
        return Ok(None);
    }
    Ok(Some(OsString::from_vec(readlinkat(&parent, name)?.into_vec())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_way_leads_below_proc() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("srv/deep")).unwrap();
        symlink("/proc/self/fd/7", at("direct")).unwrap();
        symlink("../../proc/self", at("srv/deep/up")).unwrap();
        symlink("deep/up", at("srv/chain")).unwrap();
        symlink("/", at("top")).unwrap();
        symlink("/proc", at("p")).unwrap();
        symlink("circle", at("circle")).unwrap();
        for bad in [
            "/proc/self/fd/7",
            "/proc/./self/fd/7/",
            "/srv/../proc/self/fd/8",
            "//proc//1/cwd",
            "/nowhere/../proc/self",
            "proc/self/fd/7",
            "/direct",
            "/direct/../../x",
            "/srv/chain/fd/9",
            "/top/top/proc/thread-self/fd/7",
            "/p/self/fd/7",
            "/circle",
        ] {
            assert!(check(root.path(), bad).is_err(), "{bad}");
        }
        assert!(check_program(root.path(), "/proc/self/fd/7/../../bin/sh").is_err());
        assert!(check_program(root.path(), "/srv/chain/exe").is_err());
        assert!(check(root.path(), &format!("/{}", "x".repeat(300))).is_err(), "an error other than a missing path");
        for good in ["sh", "/srv/app", "./app"] {
            check_program(root.path(), good).unwrap();
        }
        for good in ["/", "", "/srv", "/srv/deep/../x", "/top/srv", "/nowhere/at/all", "/processes/x", "/proc"] {
            check(root.path(), good).unwrap();
        }
    }
}
