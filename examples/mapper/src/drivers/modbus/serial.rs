//! A serial line as a stream of bytes (termios(3)). Knows nothing of Modbus.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::fcntl::OFlag;
use nix::sys::termios::{BaudRate, ControlFlags, FlushArg, SetArg, cfmakeraw, tcflush, tcgetattr, tcsetattr};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::address::{Line, Parity};

#[derive(Debug)]
pub(super) struct Serial(AsyncFd<File>);

const fn speed(baud: u32) -> Option<BaudRate> {
    Some(match baud {
        1_200 => BaudRate::B1200,
        1_800 => BaudRate::B1800,
        2_400 => BaudRate::B2400,
        4_800 => BaudRate::B4800,
        9_600 => BaudRate::B9600,
        19_200 => BaudRate::B19200,
        38_400 => BaudRate::B38400,
        57_600 => BaudRate::B57600,
        115_200 => BaudRate::B115200,
        230_400 => BaudRate::B230400,
        460_800 => BaudRate::B460800,
        921_600 => BaudRate::B921600,
        _ => return None,
    })
}

impl Serial {
    /// Discards all waiting bytes.
    ///
    /// # Errors
    /// It cannot be opened, is not a serial line, or another program holds it.
    pub(super) fn open(line: &Line) -> io::Result<Self> {
        let speed =
            speed(line.baud).ok_or_else(|| io::Error::other(format!("no serial line has {} baud", line.baud)))?;
        let flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        let file = File::options().read(true).write(true).custom_flags(flags.bits()).open(&line.path)?;
        // Programs that drive lines agree by locks of this kind.
        file.try_lock().map_err(|error| io::Error::other(format!("another program holds it: {error}")))?;
        let mut settings = tcgetattr(file.as_fd())?;
        cfmakeraw(&mut settings);
        let flags = &mut settings.control_flags;
        flags.remove(ControlFlags::CSIZE | ControlFlags::PARENB | ControlFlags::PARODD | ControlFlags::CSTOPB);
        flags.remove(ControlFlags::CRTSCTS | ControlFlags::CBAUD);
        // The kernel's form, for both directions: cfsetspeed(3) of the crate cannot be linked into a static program.
        flags.insert(ControlFlags::from_bits_retain(speed as nix::libc::tcflag_t));
        flags.insert(ControlFlags::CLOCAL | ControlFlags::CREAD);
        flags.insert(if line.data_bits == 7 { ControlFlags::CS7 } else { ControlFlags::CS8 });
        flags.set(ControlFlags::PARENB, line.parity != Parity::None);
        flags.set(ControlFlags::PARODD, line.parity == Parity::Odd);
        flags.set(ControlFlags::CSTOPB, line.stop_bits == 2);
        tcsetattr(file.as_fd(), SetArg::TCSANOW, &settings)?;
        tcflush(file.as_fd(), FlushArg::TCIOFLUSH)?;
        // SAFETY: a File is an open file descriptor, one and the same until it is dropped, and nothing here takes it out.
        unsafe { AsyncFd::register(file) }.map(Self).map_err(io::Error::from)
    }
}

impl AsyncRead for Serial {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let read = |fd: &AsyncFd<File>| fd.get_ref().read(into.initialize_unfilled());
            if let Ok(read) = ready.try_io(read) {
                return Poll::Ready(read.map(|count| into.advance(count)));
            }
        }
    }
}

impl AsyncWrite for Serial {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            if let Ok(written) = ready.try_io(|fd| fd.get_ref().write(bytes)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
