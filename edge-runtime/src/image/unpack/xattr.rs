//! Extended attributes by descriptor: the calls nix has no wrapper for.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;

/// Marks a directory through which overlayfs does not look further down.
pub(super) const OPAQUE: &CStr = c"trusted.overlay.opaque";

/// Maximum length of a value (xattr(7), `XATTR_SIZE_MAX`).
const LONGEST: usize = 64 << 10;

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
pub fn is_opaque(fd: BorrowedFd<'_>) -> bool {
    let mut value = [0_u8; 1];
    // SAFETY: the name ends in a zero byte, and the kernel writes one byte at most.
    let length = unsafe { libc::fgetxattr(fd.as_raw_fd(), OPAQUE.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    length == 1 && value == *b"y"
}

/// Attributes of the file that `fd` is open on, as far as a layer may carry them.
///
/// # Errors
/// The kernel's, but not for a file system without attributes: its files have none.
pub fn list(fd: BorrowedFd<'_>) -> io::Result<Vec<(CString, Vec<u8>)>> {
    // SAFETY: with a length of zero the kernel writes nothing.
    let length = unsafe { libc::flistxattr(fd.as_raw_fd(), std::ptr::null_mut(), 0) };
    let mut names = match Errno::result(length) {
        Ok(length) => vec![0_u8; usize::try_from(length).unwrap_or_default()],
        Err(Errno::EOPNOTSUPP) => Vec::new(),
        Err(errno) => return Err(errno.into()),
    };
    // SAFETY: the kernel writes at most this length.
    let length = unsafe { libc::flistxattr(fd.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    // With a length of zero it would be the length of all names.
    names.truncate(usize::try_from(length).unwrap_or_default());
    let mut all = Vec::new();
    for name in names.split(|byte| *byte == 0).filter_map(allowed) {
        let mut value = vec![0_u8; LONGEST];
        // SAFETY: `name` ends in a zero byte, and the kernel writes at most this length.
        let length = unsafe { libc::fgetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), LONGEST) };
        value.truncate(usize::try_from(Errno::result(length)?).unwrap_or_default());
        all.push((name, value));
    }
    Ok(all)
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn only_attributes_that_a_layer_may_carry_are_listed() {
        let file = tempfile::tempfile().unwrap();
        assert!(list(file.as_fd()).unwrap().is_empty());
        // Not every file system has attributes.
        if set(file.as_fd(), c"user.a", b"1\0\n").is_err() {
            return;
        }
        set(file.as_fd(), c"user.overlay.opaque", b"y").unwrap();
        assert_eq!(list(file.as_fd()).unwrap(), [(c"user.a".to_owned(), b"1\0\n".to_vec())]);
    }
}
