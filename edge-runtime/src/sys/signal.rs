//! Signals as a stream for the loop. Knows nothing of what they ask for.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use smol::Async;

/// The signals that end a daemon, read instead of delivered.
pub struct Signals(Async<SignalFd>);

impl Signals {
    /// Blocks SIGTERM and SIGINT for this thread and all it starts later, so call it before anything
    /// starts a thread. Children are safe: the standard library empties the mask of what it spawns.
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

fn would_block() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}
