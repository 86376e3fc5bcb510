//! Mounts whose files have other owners than on the disk (`mount_setattr(2)`, Linux 5.12; for tmpfs 6.3, below an
//! overlay 5.19). The OCI runtime does not need to support them: runc does since 1.2 only, and a bind mount keeps the
//! mapping.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::libc;

/// `struct mount_attr` of linux/mount.h, first version.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_ns: u64,
}

/// `MS_SLAVE`, whose type in libc differs from machine to machine.
const SLAVE: u64 = 1 << 19;
/// `MOUNT_ATTR_IDMAP`.
const IDMAP: u64 = 0x10_0000;
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const AT_RECURSIVE: libc::c_int = 0x8000;
const AT_FLAGS: libc::c_uint = (AT_RECURSIVE | libc::O_CLOEXEC).cast_unsigned();

/// Binds `source`, with what is mounted below it, to `target`, a folder or file of the same kind; the owners of the
/// mount at `source` itself are seen through the mapping of the user namespace.
///
/// Later mounts below `source` propagate to it, but not back. Where systemd has made all mounts shared, the end of a
/// tree that is a peer of its source would unmount what is mounted there, including the namespaces of pods.
///
/// # Errors
/// The file system of `source` cannot be mapped (EINVAL), or is mapped already (EPERM).
pub fn bind(source: &Path, user_ns: &impl AsRawFd, target: &Path) -> io::Result<()> {
    let (source, target) = (text(source)?, text(target)?);
    // SAFETY: the path is a string that ends with a zero and lives through the call.
    let tree =
        unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), OPEN_TREE_CLONE | AT_FLAGS) };
    let tree = i32::try_from(done(tree)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us; it has no other owner.
    let tree = unsafe { OwnedFd::from_raw_fd(tree) };
    let user_ns = u64::try_from(user_ns.as_raw_fd()).map_err(io::Error::other)?;
    let mapped = MountAttr { set: IDMAP, clear: 0, propagation: 0, user_ns };
    set(&tree, libc::AT_EMPTY_PATH, &mapped)?;
    let one_way = MountAttr { set: 0, clear: 0, propagation: SLAVE, user_ns: 0 };
    set(&tree, libc::AT_EMPTY_PATH | AT_RECURSIVE, &one_way)?;
    // SAFETY: both strings end with a zero and live through the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })?;
    Ok(())
}

fn set(tree: &OwnedFd, flags: libc::c_int, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: `attr` has the layout and size that are said, and lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const *attr,
            size_of::<MountAttr>(),
        )
    };
    done(result).map(drop)
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn done(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::process::{Command, Stdio};

    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    use super::*;

    const NAME: &str = "sys::idmap::tests::the_end_of_a_mapped_tree_is_not_its_sources";

    /// In a mount namespace of its own in which, as under systemd, all mounts are shared.
    #[test]
    fn the_end_of_a_mapped_tree_is_not_its_sources() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        if std::env::var_os("IDMAP_INSIDE").is_none() {
            let this = std::env::current_exe().unwrap();
            let mut inside = Command::new("unshare");
            inside.args(["--mount", "--propagation", "shared"]).arg(this).args(["--exact", NAME]);
            assert!(inside.env("IDMAP_INSIDE", "1").stdout(Stdio::null()).status().unwrap().success());
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let [source, target] = ["source", "target"].map(|name| dir.path().join(name));
        let below = source.join("below");
        let tmpfs = |at: &Path| mount(Some("t"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let is_mounted = || fs::read_to_string("/proc/self/mounts").unwrap().contains(below.to_str().unwrap());
        fs::create_dir_all(&source).unwrap();
        fs::create_dir(&target).unwrap();
        tmpfs(&source);
        fs::create_dir(&below).unwrap();
        tmpfs(&below);
        let mut holder = Command::new("unshare").args(["--user", "sleep", "60"]).spawn().unwrap();
        let of_holder = |name: &str| format!("/proc/{}/{name}", holder.id());
        let own = fs::read_link("/proc/self/ns/user").unwrap();
        while fs::read_link(of_holder("ns/user")).unwrap() == own {
            std::thread::yield_now();
        }
        for map in ["uid_map", "gid_map"] {
            fs::write(of_holder(map), "0 100000 1000\n").unwrap();
        }
        let user = File::open(of_holder("ns/user")).unwrap();
        let bound = bind(&source, &user, &target);
        holder.kill().unwrap();
        holder.wait().unwrap();
        // Before Linux 6.3 a tmpfs cannot be mapped.
        if bound.is_ok() {
            assert!(target.join("below").is_dir() && is_mounted());
            umount2(&target, MntFlags::MNT_DETACH).unwrap();
            assert!(is_mounted(), "what is mounted below the source is still there");
        }
        umount2(&below, MntFlags::MNT_DETACH).unwrap();
        umount2(&source, MntFlags::MNT_DETACH).unwrap();
    }
}
