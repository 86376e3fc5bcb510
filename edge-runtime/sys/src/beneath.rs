//! Opens paths that other users can change, without leaving a folder: by openat2(2), or step by step on kernels before
//! 5.6.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

/// The path with `root` as its root: links lead to places below it, absolute ones too.
///
/// # Errors
/// What openat2(2) gives.
pub fn open_in_root<P: ?Sized + NixPath>(root: impl AsFd, path: &P, flags: OFlag) -> Result<OwnedFd, Errno> {
    open(root, path, flags, ResolveFlag::RESOLVE_IN_ROOT)
}

/// Opens the path below `folder`; one that leads out of it is refused (`EXDEV`).
///
/// # Errors
/// What openat2(2) gives.
pub fn open_beneath<P: ?Sized + NixPath>(folder: impl AsFd, path: &P, flags: OFlag) -> Result<OwnedFd, Errno> {
    open(folder, path, flags, ResolveFlag::RESOLVE_BENEATH)
}

fn open<P: ?Sized + NixPath>(from: impl AsFd, path: &P, flags: OFlag, within: ResolveFlag) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(within | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    open_by(
        || openat2(&from, path, how),
        || {
            let path = path.with_nix_path(|path| OsStr::from_bytes(path.to_bytes()).to_owned())?;
            step_by_step(from.as_fd(), &path, flags, within)
        },
    )
}

/// `openat2`: the system call, repeated after a race. `without`: the way on kernels that do not have it.
fn open_by(
    openat2: impl Fn() -> Result<OwnedFd, Errno>,
    without: impl FnOnce() -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    loop {
        match openat2() {
            // A rename raced with the walk (openat2(2)): again.
            Err(Errno::EAGAIN) => {}
            Err(Errno::ENOSYS) => return without(),
            result => return result,
        }
    }
}

/// Maximum number of links followed, as in the kernel (path_resolution(7)).
const MOST_LINKS: u32 = 40;
const LOOK: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Does the work of openat2(2), with a descriptor for each folder on the way: `..` returns to the folder before, and
/// links are read and followed here, so that a rename meanwhile cannot redirect it.
fn step_by_step(root: BorrowedFd<'_>, path: &OsStr, flags: OFlag, within: ResolveFlag) -> Result<OwnedFd, Errno> {
    let in_root = within == ResolveFlag::RESOLVE_IN_ROOT;
    let mut passed: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    let mut todo = parts(path, VecDeque::new());
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    if path.as_bytes().starts_with(b"/") && !in_root {
        return Err(Errno::EXDEV);
    }
    while let Some(part) = todo.pop_front() {
        if part == ".." {
            if passed.pop().is_none() && !in_root {
                return Err(Errno::EXDEV);
            }
            continue;
        }
        let here = passed.last().map_or(root, |folder| folder.as_fd());
        let found = openat(here, part.as_os_str(), LOOK, Mode::empty())?;
        let kind = SFlag::from_bits_truncate(fstat(&found)?.st_mode) & SFlag::S_IFMT;
        let is_last = todo.is_empty();
        if kind == SFlag::S_IFLNK && !(is_last && flags.contains(OFlag::O_NOFOLLOW)) {
            links += 1;
            if links > MOST_LINKS || fstatfs(&found)?.filesystem_type() == PROC_SUPER_MAGIC {
                return Err(Errno::ELOOP);
            }
            let target = readlinkat(&found, "")?;
            if target.as_bytes().starts_with(b"/") {
                if !in_root {
                    return Err(Errno::EXDEV);
                }
                passed.clear();
            }
            todo = parts(&target, todo);
        } else if !is_last {
            if kind != SFlag::S_IFDIR {
                return Err(Errno::ENOTDIR);
            }
            passed.push(found);
        } else {
            // By its name and not its descriptor: O_PATH has no rights to read. One that is a link by now is not followed.
            return openat(here, part.as_os_str(), flags | OFlag::O_NOFOLLOW, Mode::empty());
        }
    }
    let here = passed.last().map_or(root, |folder| folder.as_fd());
    openat(here, ".", flags, Mode::empty())
}

/// The parts of a path, before those that are still to be gone.
fn parts(path: &OsStr, mut rest: VecDeque<OsString>) -> VecDeque<OsString> {
    let path = path.as_bytes();
    let names = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    for part in names.rev() {
        rest.push_front(OsString::from_vec(part.to_vec()));
    }
    rest
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_do_not_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("passwd"), "own").unwrap();
        symlink("/passwd", dir.path().join("link")).unwrap();
        let root = File::open(dir.path()).unwrap();
        if matches!(open_beneath(&root, "passwd", OFlag::O_RDONLY), Err(Errno::ENOSYS)) {
            return;
        }
        assert_eq!(
            std::io::read_to_string(File::from(open_in_root(&root, "link", OFlag::O_RDONLY).unwrap())).unwrap(),
            "own"
        );
        assert_eq!(open_beneath(&root, "link", OFlag::O_RDONLY).unwrap_err(), Errno::EXDEV);
        assert_eq!(open_beneath(&root, "../x", OFlag::O_RDONLY).unwrap_err(), Errno::EXDEV);
    }

    #[test]
    fn old_kernels_open_the_same_paths_as_openat2() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        for file in ["passwd", "a/b/file"] {
            std::fs::write(at(file), file).unwrap();
        }
        let links = [
            ("abs", "/passwd"),
            ("up", "../../../passwd"),
            ("a/deep", "b/file"),
            ("a/back", "../passwd"),
            ("dir", "a/b"),
            ("circle", "circle"),
            ("gone", "nowhere"),
            ("a/out", "../../x"),
            ("chain", "a/deep"),
            ("slash", "/"),
        ];
        for (link, target) in links {
            symlink(target, at(link)).unwrap();
        }
        let root = File::open(dir.path()).unwrap();
        if matches!(open_beneath(&root, "passwd", OFlag::O_RDONLY), Err(Errno::ENOSYS)) {
            return;
        }
        let same = |one: &OwnedFd, two: &OwnedFd| {
            let (one, two) = (fstat(one).unwrap(), fstat(two).unwrap());
            (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)
        };
        let paths = [
            "passwd",
            "/passwd",
            "a/b/file",
            "a/../passwd",
            "../passwd",
            "a/b/../../../passwd",
            "abs",
            "up",
            "a/deep",
            "a/back",
            "dir/file",
            "dir/../../passwd",
            "circle",
            "gone",
            "a/out",
            "chain",
            "slash/passwd",
            "passwd/x",
            "nowhere",
            "a",
            ".",
            "a/",
            "",
            "/",
        ];
        for within in [ResolveFlag::RESOLVE_IN_ROOT, ResolveFlag::RESOLVE_BENEATH] {
            for flags in [
                OFlag::O_RDONLY,
                OFlag::O_PATH,
                OFlag::O_PATH | OFlag::O_NOFOLLOW,
                OFlag::O_RDONLY | OFlag::O_DIRECTORY,
            ] {
                for path in paths {
                    let new = open(&root, path, flags, within);
                    let old = step_by_step(root.as_fd(), OsStr::new(path), flags | OFlag::O_CLOEXEC, within);
                    match (&new, &old) {
                        (Ok(new), Ok(old)) => assert!(same(new, old), "{path} {flags:?} {within:?}"),
                        _ => assert_eq!(new.as_ref().err(), old.as_ref().err(), "{path} {flags:?} {within:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn kernel_without_openat2_gets_the_other_way() {
        let races = std::cell::Cell::new(2);
        let old = || match races.replace(races.get() - 1) {
            0 => Err(Errno::ENOSYS),
            _ => Err(Errno::EAGAIN),
        };
        assert_eq!(open_by(old, || Err(Errno::EPERM)).unwrap_err(), Errno::EPERM);
        let denied = open_by(|| Err(Errno::EXDEV), || panic!("openat2 has answered"));
        assert_eq!(denied.unwrap_err(), Errno::EXDEV);
    }

    #[test]
    fn magic_links_are_not_followed() {
        let proc = File::open("/proc/self").unwrap();
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let opened = step_by_step(proc.as_fd(), OsStr::new("cwd"), flags, ResolveFlag::RESOLVE_IN_ROOT);
        assert_eq!(opened.unwrap_err(), Errno::ELOOP);
    }
}
