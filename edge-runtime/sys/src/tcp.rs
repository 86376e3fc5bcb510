//! A socket option that nix has no name for.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;

/// Most bytes the kernel takes beyond those it has sent (tcp(7), `TCP_NOTSENT_LOWAT`): what waits in the socket can be
/// overtaken by nothing.
///
/// # Errors
/// It is not a TCP socket.
pub fn limit_unsent(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let length = libc::socklen_t::from(4u8);
    // SAFETY: the kernel reads four bytes at the pointer during the call and keeps nothing.
    let result = unsafe {
        let value = (&raw const bytes).cast();
        libc::setsockopt(socket.as_fd().as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, length)
    };
    Errno::result(result).map(drop).map_err(io::Error::from)
}
