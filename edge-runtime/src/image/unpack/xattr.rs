//! Extended attributes by descriptor: the one call nix has no wrapper for.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;

/// Marks a directory through which overlayfs does not look further down.
pub(super) const OPAQUE: &CStr = c"trusted.overlay.opaque";

/// Sets `name` on the file that `fd` is open on.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` where the file system has no such attributes, `EPERM` without the right.
pub(super) fn set(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: `name` ends in a zero byte, `value` is valid for its length, and the kernel only reads both.
    let result = unsafe { libc::fsetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Whether overlayfs looks no further down through the folder that `fd` is open on.
pub(in crate::image) fn is_opaque(fd: BorrowedFd<'_>) -> bool {
    let mut value = [0_u8; 1];
    // SAFETY: the name ends in a zero byte, and the kernel writes one byte at most.
    let length = unsafe { libc::fgetxattr(fd.as_raw_fd(), OPAQUE.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    length == 1 && value == *b"y"
}

/// Whether a layer may carry this attribute: capabilities, POSIX ACLs and the user's own. Not `trusted.*` and
/// `user.overlay.*`, with which a layer would tell overlayfs where to look, and not the labels of the host's
/// security modules.
pub(super) fn allowed(name: &[u8]) -> Option<CString> {
    let known = name == b"security.capability"
        || name.starts_with(b"system.posix_acl_")
        || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."));
    known.then(|| CString::new(name).ok()).flatten()
}
