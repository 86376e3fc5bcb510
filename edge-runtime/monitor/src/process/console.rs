//! The terminal of a container on its way from the OCI runtime: one descriptor in one message on a socket.
//!
//! The runtime sends it and continues; it waits in the socket until `run` has returned.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::cmsg_space;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use sampan_sys::socket;

/// Name of the socket in the bundle.
pub(crate) const SOCKET: &str = "console.sock";

/// Path of the console socket for the OCI runtime, which works in the bundle's folder. youki needs an absolute path and
/// supports a long one. runc and crun connect to the path as given, and `sun_path` has 108 bytes.
pub(crate) fn path(bundle: &Path) -> PathBuf {
    const SUN_PATH: usize = 108;
    let whole = bundle.join(SOCKET);
    if whole.as_os_str().len() < SUN_PATH { whole } else { PathBuf::from(SOCKET) }
}

pub(crate) fn listen(bundle: &Path) -> io::Result<UnixListener> {
    let listener = socket::listen(&bundle.join(SOCKET), 0o600)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The terminal's master, which reads and writes without waiting.
pub(crate) fn receive(listener: &UnixListener, bundle: &Path) -> io::Result<File> {
    // Prevents other connections.
    let _ = fs::remove_file(bundle.join(SOCKET));
    let (stream, _) = listener.accept()?;
    let mut name = [0; 256];
    let mut parts = [IoSliceMut::new(&mut name)];
    let mut space = cmsg_space!([RawFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let sent = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
        _ => None,
    });
    let fd = sent.ok_or_else(|| io::Error::other("the OCI runtime sent no terminal"))?;
    // SAFETY: the kernel has just made this descriptor for us, the only one there was room for; it has no other owner.
    let master = unsafe { File::from_raw_fd(fd) };
    fcntl(&master, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    Ok(master)
}
