//! Messages of a connection to the monitor.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use smol::Async;
use smol::future::or;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use crate::paths::Paths;
use crate::sys::socket;
use sampan_monitor::frame;
use sampan_monitor::protocol::{Answer, Call, FromMonitor, Request};

/// How long a monitor may take to end after it has agreed to.
const FAREWELL: Duration = Duration::from_secs(5);

pub(in crate::monitor) fn connect(paths: &Paths) -> Option<Async<UnixStream>> {
    Async::new(socket::connect(&paths.monitor_socket()).ok()?).ok()
}

/// Waits until the other end is closed: its process has given up its socket, so that a new one may take its place.
pub(super) async fn until_closed(stream: &Async<UnixStream>) {
    let closed = async {
        let (mut reader, mut buffer) = (stream, [0; 256]);
        while reader.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    };
    let enough = async {
        smol::Timer::after(FAREWELL).await;
    };
    or(closed, enough).await;
}

pub(in crate::monitor) async fn send(stream: &mut &Async<UnixStream>, seq: u64, request: Request) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame::encode(&Call { seq, request }, &mut bytes).map_err(io::Error::other)?;
    stream.write_all(&bytes).await
}

/// Receives the next message; `None` for one that this version does not know.
pub(in crate::monitor) async fn receive(
    stream: &mut &Async<UnixStream>,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<FromMonitor>> {
    loop {
        if let Some(frame) = frame::take(buffer).map_err(io::Error::other)? {
            return Ok(understand(&frame));
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buffer.extend_from_slice(&chunk[..count]),
        }
    }
}

/// An answer whose details are of another version still ends the call that waits for it.
fn understand(bytes: &[u8]) -> Option<FromMonitor> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        answer: u64,
    }
    frame::decode(bytes).ok().or_else(|| {
        let Numbered { answer } = frame::decode(bytes).ok()?;
        let error = Some("its answer is not understood".to_owned());
        Some(FromMonitor::Answer(Answer { answer, error, ..Answer::default() }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_another_version_still_ends_its_call() {
        let of = |text: &str| understand(text.as_bytes());
        let whole = Answer { answer: 3, ..Answer::default() };
        assert_eq!(of(r#"{"answer":3,"of the future":1}"#), Some(FromMonitor::Answer(whole.clone())));
        let error = Some("its answer is not understood".to_owned());
        let strange = FromMonitor::Answer(Answer { error, ..whole });
        assert_eq!(of(r#"{"answer":3,"containers":[{"phase":"of the future"}]}"#), Some(strange));
        for text in ["", "{", "null", r#"{"answer":-1}"#, r#"{"answer":"3"}"#, r#"{"event":"of the future"}"#] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
