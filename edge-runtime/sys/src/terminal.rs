//! Pseudo-terminals: made, and given their size. Knows nothing of who sits at either end.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::termios::{OutputFlags, SetArg, cfmakeraw, tcgetattr, tcsetattr};

/// Columns and rows, as a client of Kubernetes sends them (client-go tools/remotecommand `TerminalSize`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Size {
    #[serde(rename = "Width")]
    pub width: u16,
    #[serde(rename = "Height")]
    pub height: u16,
}

mod ioctl {
    nix::ioctl_write_ptr_bad!(set_size, nix::libc::TIOCSWINSZ, nix::pty::Winsize);
    nix::ioctl_read_bad!(get_size, nix::libc::TIOCGWINSZ, nix::pty::Winsize);
}

/// A new pseudo-terminal that passes every byte as it is: master and slave, neither inherited by children.
///
/// # Errors
/// No `/dev/ptmx`, or no terminal is free.
pub fn open_raw() -> io::Result<(File, File)> {
    let OpenptyResult { master, slave } = openpty(None, None)?;
    for fd in [&master, &slave] {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    let mut settings = tcgetattr(&slave)?;
    cfmakeraw(&mut settings);
    // Even if a process turns the processing of output on again, as runc does (containerd/console `SetRaw`).
    settings.output_flags.remove(OutputFlags::ONLCR);
    tcsetattr(&slave, SetArg::TCSANOW, &settings)?;
    Ok((master.into(), slave.into()))
}

/// Sets the size; either end may be given. The foreground process gets SIGWINCH if the size has changed.
///
/// # Errors
/// It is not a terminal.
pub fn resize(terminal: &impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize { ws_col: size.width, ws_row: size.height, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor lives as long as the reference, and the kernel only reads `size` during the call.
    unsafe { ioctl::set_size(terminal.as_fd().as_raw_fd(), &raw const size) }?;
    Ok(())
}

/// `None` if it is not a terminal, or has no size.
pub fn size(terminal: &impl AsFd) -> Option<Size> {
    let mut size = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor lives as long as the reference, and the kernel only writes a `winsize` during the call.
    unsafe { ioctl::get_size(terminal.as_fd().as_raw_fd(), &raw mut size) }.ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(Size { width: size.ws_col, height: size.ws_row })
}

/// Whether a read has failed because the terminal's other end is closed.
#[must_use]
pub fn is_hung_up(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn bytes_pass_unchanged_and_the_end_is_a_hang_up() {
        let (mut master, mut slave) = open_raw().unwrap();
        resize(&master, Size { width: 91, height: 17 }).unwrap();
        slave.write_all(b"a\n\x03").unwrap();
        let mut seen = [0; 3];
        master.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"a\n\x03");
        drop(slave);
        assert!(is_hung_up(&master.read(&mut seen).unwrap_err()));
        assert_eq!(
            serde_json::from_str::<Size>(r#"{"Width":80,"Height":24}"#).unwrap(),
            Size { width: 80, height: 24 }
        );
    }
}
