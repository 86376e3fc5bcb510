//! The daemon's connection to a container's output from now on, and to its input.
//!
//! The monitor sends the bytes as the container wrote them. The log has only whole lines, but a prompt has no end of
//! line. Other CRI runtimes do the same (containerd's writer group, conmon's attach socket).

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::libc::O_NONBLOCK;
use smol::Async;

use super::client::ClientError;
use super::link::{connect, receive, send};
use crate::paths::Paths;
use sampan_monitor::logs::cri::Stream;
use sampan_monitor::protocol::{Event, FromMonitor, Request};

/// Dropping it detaches; the container does not notice.
pub struct Attachment {
    stream: Async<UnixStream>,
    buffer: Vec<u8>,
}

impl Attachment {
    /// Attaches to a running container.
    ///
    /// # Errors
    /// It does not run, or the monitor is of a version that cannot.
    pub async fn open(paths: &Paths, id: &str) -> Result<Self, ClientError> {
        let gone = |_| ClientError::Gone;
        let stream = connect(paths).ok_or(ClientError::Gone)?;
        send(&mut &stream, 1, Request::Attach { id: id.to_owned() }).await.map_err(gone)?;
        let mut buffer = Vec::new();
        loop {
            if let Some(FromMonitor::Answer(answer)) = receive(&mut &stream, &mut buffer).await.map_err(gone)? {
                return match answer.error {
                    Some(error) => Err(ClientError::Refused(error)),
                    None => Ok(Self { stream, buffer }),
                };
            }
        }
    }

    /// Returns the next output; `None` when it has ended.
    ///
    /// # Errors
    /// The monitor has died, or dropped us because we took nothing for long.
    pub async fn next(&mut self) -> io::Result<Option<(Stream, Vec<u8>)>> {
        loop {
            match receive(&mut &self.stream, &mut self.buffer).await? {
                Some(FromMonitor::Event(Event::Output { stream, data })) => return Ok(Some((stream, data))),
                Some(FromMonitor::Event(Event::OutputEnd {})) => return Ok(None),
                _ => {}
            }
        }
    }
}

/// The writing end of the standard input of a container that has one and no terminal.
///
/// # Errors
/// It has been closed, by the container or permanently.
pub fn open_stdin(bundle: &Path) -> io::Result<Async<File>> {
    let pipe = File::options().write(true).custom_flags(O_NONBLOCK).open(bundle.join("stdin"))?;
    Async::new(pipe)
}
