//! The connection to `edge-api` for requests of pods: moves frames between its socket and the relay.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::stream::StreamEvent;
use sampan_api_control::frame::Frames;
use sampan_api_control::{ToHelper, VERSION};
use smol::Timer;
use smol::channel::{Receiver, Sender, bounded};
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use super::relay::Relay;
use crate::link::LinkHandle;
use crate::sys::socket;

/// Bytes read at once.
const CHUNK: usize = 16 << 10;
/// Bytes that may wait for the helper, which always reads: the credit of all streams, and as much again.
const MOST_WAITING: usize = 4 << 20;
/// Pause before the next connection.
const PAUSE: Duration = Duration::from_secs(1);

/// Requests under way.
pub(super) struct Requests {
    relay: RefCell<Relay>,
    wake: Sender<()>,
    woken: Receiver<()>,
}

impl Requests {
    pub(super) fn new(link: LinkHandle) -> Self {
        let (wake, woken) = bounded(1);
        Self { relay: RefCell::new(Relay::new(link)), wake, woken }
    }

    /// Takes an event of a stream that this node has opened.
    pub(super) fn take(&self, event: StreamEvent) {
        self.relay.borrow_mut().event(event);
        self.wake();
    }

    /// The helper has ended.
    pub(super) fn cut(&self) {
        self.relay.borrow_mut().cut();
    }

    /// Keeps a connection to the helper, until it is dropped.
    pub(super) async fn keep(self: Rc<Self>, socket: PathBuf) {
        loop {
            let Err(error) = self.serve(&socket).await;
            log::debug!("requests of pods to the API: {error}");
            self.cut();
            Timer::after(PAUSE).await;
        }
    }

    async fn serve(&self, path: &Path) -> io::Result<Infallible> {
        let stream = socket::connect_beside(path).await?;
        let write = async {
            let mut to = &stream;
            let mut first = serde_json::to_vec(&ToHelper::Streams { version: VERSION })?;
            first.push(b'\n');
            to.write_all(&first).await?;
            loop {
                let out = std::mem::take(&mut self.relay.borrow_mut().out);
                if out.is_empty() {
                    self.woken.recv().await.map_err(io::Error::other)?;
                } else {
                    to.write_all(&out).await?;
                }
            }
        };
        let read = async {
            let (mut from, mut frames, mut chunk) = (&stream, Frames::default(), vec![0; CHUNK]);
            loop {
                match from.read(&mut chunk).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => frames.push(chunk.get(..count).unwrap_or_default()),
                }
                self.received(&mut frames)?;
            }
        };
        write.or(read).await
    }

    fn received(&self, frames: &mut Frames) -> io::Result<()> {
        let mut relay = self.relay.borrow_mut();
        while let Some(frame) = frames.next_frame().map_err(io::Error::other)? {
            relay.frame(frame);
        }
        if relay.out.len() > MOST_WAITING {
            return Err(io::Error::other("edge-api does not read"));
        }
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        // Full: the writer is about to look anyway.
        let _ = self.wake.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};

    use edge_protocol::message::{ApiRequest, ToCloud};
    use edge_protocol::version::API;
    use sampan_api_control::Kind;
    use sampan_api_control::frame::write;

    use super::*;
    use crate::paths::Paths;

    #[test]
    fn request_of_the_helper_reaches_the_link() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let link = LinkHandle::for_tests(&Paths::new(folder.path()), &[API]);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let helper = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let (mut reader, mut line, mut out) = (BufReader::new(&stream), String::new(), Vec::new());
            reader.read_line(&mut line).unwrap();
            let request =
                ApiRequest { method: "GET".into(), path: "/api".into(), headers: Vec::new(), has_body: false };
            write(1, Kind::Open, &serde_json::to_vec(&request).unwrap(), &mut out);
            write(2, Kind::Open, b"{}", &mut out);
            (&stream).write_all(&out).unwrap();
            // The refusal of the second; then it ends.
            let mut frame = [0; 13];
            reader.read_exact(&mut frame).unwrap();
            (line, frame)
        });
        let requests = Rc::new(Requests::new(link.clone()));
        let mut said = Vec::new();
        smol::block_on(Rc::clone(&requests).keep(socket).or(async {
            while !matches!(said.last(), Some(ToCloud::StreamEnd { .. })) {
                said.extend(link.says());
                Timer::after(Duration::from_millis(5)).await;
            }
        }));
        let (line, frame) = helper.join().unwrap();
        assert_eq!(line, "{\"streams\":{\"version\":1}}\n");
        assert_eq!((frame[7], frame[8]), (2, 2), "an answer on stream 2");
        let asked = said.iter().filter(|message| matches!(message, ToCloud::ApiOpen { .. }));
        assert_eq!(asked.count(), 1, "and the end, as the helper is gone: {said:?}");
    }
}
