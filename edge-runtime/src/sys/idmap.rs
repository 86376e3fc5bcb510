//! Mounts whose files have other owners than on the disk (`mount_setattr(2)`, Linux 5.12; for tmpfs 6.3, below an
//! overlay 5.19). The OCI runtime need not know of it: runc learned to make them in 1.2 only, and binding one keeps it.
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

/// `MOUNT_ATTR_IDMAP`.
const IDMAP: u64 = 0x10_0000;
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const AT_FLAGS: libc::c_uint = 0x8000 | libc::O_CLOEXEC.cast_unsigned();

/// Binds `source`, with what is mounted below it, to `target`, a folder or file of the same kind; the owners of the
/// mount at `source` itself are seen through the mapping of the user namespace.
///
/// # Errors
/// The file system of `source` cannot be mapped (EINVAL), or is mapped already (EPERM).
pub fn bind(source: &Path, user_ns: &impl AsRawFd, target: &Path) -> io::Result<()> {
    let (source, target) = (text(source)?, text(target)?);
    // SAFETY: the path is a string that ends with a zero and lives through the call.
    let tree =
        unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), OPEN_TREE_CLONE | AT_FLAGS) };
    let tree = i32::try_from(done(tree)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    let tree = unsafe { OwnedFd::from_raw_fd(tree) };
    let user_ns = u64::try_from(user_ns.as_raw_fd()).map_err(io::Error::other)?;
    let attr = MountAttr { set: IDMAP, clear: 0, propagation: 0, user_ns };
    // SAFETY: `attr` has the layout and size that are said, and lives through the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })?;
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

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn done(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
