//! Signals as a stream for the loop, and the signal mask of child processes. Does not know the meaning of signals.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use smol::Async;

/// The signals that end a daemon, read instead of delivered.
pub struct Signals(Async<SignalFd>);

impl Signals {
    /// Blocks SIGTERM and SIGINT for this thread and all it starts later, so call it before anything
    /// starts a thread. Children inherit the mask: see [`unmask`].
    ///
    /// # Errors
    /// The kernel refuses the mask or the descriptor.
    pub fn block() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.add(Signal::SIGINT);
        mask.thread_block()?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self(Async::new(fd)?))
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// The descriptor fails, which it does not on Linux.
    pub async fn next(&self) -> io::Result<()> {
        self.0.read_with(|fd| fd.read_signal().map_err(io::Error::from)?.ok_or_else(would_block)).await.map(drop)
    }
}

/// Blocks nothing in this process, which is about to become another program.
///
/// # Errors
/// The kernel refuses.
pub fn unmask_self() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Makes `command` start with an empty signal mask. runc empties the mask of a container, but youki keeps it: such a
/// container would not receive SIGTERM.
pub fn unmask(command: &mut Command) {
    // SAFETY: sigprocmask(2), all that this calls, may be called between fork and exec (signal-safety(7)).
    unsafe { command.pre_exec(unmask_self) };
}

fn would_block() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}
