//! A stream of records ([`edge_protocol::channel`]) in both directions, under credit. Knows nothing of what they mean.

use std::fs::File;
use std::io;

use edge_protocol::channel::{self, HEADER, MAX_RECORD, Record, Records, STATUS};
use edge_protocol::message::StreamId;
use serde_json::Value;
use smol::Async;
use smol::channel::Receiver;
use smol::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use smol::lock::Mutex;

use super::Wires;
use crate::link::LinkHandle;

/// Records up to this long are never cut: the peer reads a status or a size from one record.
const WHOLE: usize = 4 << 10;
/// Bytes read from a process at once.
const CHUNK: usize = 16 << 10;

/// Both directions, to be used at the same time.
pub(super) struct Channels {
    pub(super) to: Outgoing,
    pub(super) from: Incoming,
}

pub(super) struct Outgoing {
    link: LinkHandle,
    stream: StreamId,
    room: Receiver<()>,
    /// Held by the task that waits for room: only one is notified.
    turn: Mutex<()>,
}

pub(super) struct Incoming {
    link: LinkHandle,
    stream: StreamId,
    input: Receiver<Vec<u8>>,
    records: Records,
    /// Bytes taken in whose records are not all dealt with.
    owed: usize,
}

/// The stream is over: the bridge has ended it, or the link is cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Over;

impl Channels {
    pub(super) fn new(Wires { link, stream, room, input, .. }: Wires) -> Self {
        let to = Outgoing { link: link.clone(), stream, room, turn: Mutex::new(()) };
        Self { to, from: Incoming { link, stream, input, records: Records::default(), owed: 0 } }
    }
}

impl Outgoing {
    /// Sends `data` on `channel`, in as many records as credit makes of it.
    pub(super) async fn send(&self, channel: u8, mut data: &[u8]) -> Result<(), Over> {
        loop {
            let turn = self.turn.lock().await;
            let length = loop {
                match part(data.len(), self.link.stream_room(self.stream)) {
                    Some(length) => break length,
                    None => self.room.recv().await.map_err(|_| Over)?,
                }
            };
            let (now, later) = data.split_at(length);
            self.link.stream_send(self.stream, &channel::records(channel, now)).map_err(|_| Over)?;
            drop(turn);
            // Others want to move bytes too.
            smol::future::yield_now().await;
            data = later;
            if data.is_empty() {
                return Ok(());
            }
        }
    }

    /// Moves all of `reader` to `channel`; an error of the reader is its end.
    pub(super) async fn copy(&self, channel: u8, mut reader: impl AsyncRead + Unpin) -> Result<(), Over> {
        let mut buffer = vec![0; CHUNK];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            self.send(channel, &buffer[..count]).await?;
        }
        Ok(())
    }

    /// The last words: how it ended.
    pub(super) async fn conclude(&self, status: Result<Value, Over>) {
        match status {
            Ok(status) => {
                if self.send(STATUS, status.to_string().as_bytes()).await.is_ok() {
                    self.end(None);
                }
            }
            Err(Over) => self.end(Some("the stream is broken".into())),
        }
    }

    /// Ends the stream, after what has been sent.
    pub(super) fn end(&self, error: Option<String>) {
        self.link.stream_end(self.stream, error);
    }
}

/// How much of `left` bytes goes into the next record; `None`: it waits for more credit than this.
fn part(left: usize, credit: usize) -> Option<usize> {
    let room = credit.checked_sub(HEADER)?;
    (room >= left.min(WHOLE)).then(|| left.min(room).min(MAX_RECORD))
}

/// Writes received input to a process, until the process does not read any more.
pub(super) async fn write(pipe: &mut Option<Async<File>>, data: &[u8]) {
    if let Some(file) = pipe
        && file.write_all(data).await.is_err()
    {
        // The process does not read any more, which is not an error.
        *pipe = None;
    }
}

impl Incoming {
    /// The next record; the previous one is consumed.
    ///
    /// # Errors
    /// The received bytes are not a record.
    pub(super) async fn next(&mut self) -> io::Result<Record> {
        loop {
            match self.records.next_record() {
                Ok(Some(record)) => return Ok(record),
                Ok(None) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
            self.link.stream_consumed(self.stream, std::mem::take(&mut self.owed));
            let bytes = self.input.recv().await.map_err(|_| io::ErrorKind::UnexpectedEof)?;
            self.owed = bytes.len();
            self.records.push(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::channel::{STDIN, STDOUT};
    use edge_protocol::message::{StreamRequest, ToCloud, ToEdge};
    use smol::block_on;
    use smol::channel::{Sender, bounded};
    use tempfile::TempDir;

    use super::*;
    use crate::node::context::Context;

    /// Stream 1, on which no credit follows. The sender is for what the bridge sends.
    fn opened(credit: usize) -> (TempDir, LinkHandle, Channels, Sender<Vec<u8>>) {
        let (folder, cx) = Context::in_a_folder();
        let link = LinkHandle::for_tests(&cx.paths, &[]);
        let credit = u64::try_from(credit).unwrap();
        link.hears(&ToEdge::StreamOpen { stream: 1, request: StreamRequest::Stats {}, credit });
        link.says();
        let (sender, input) = bounded(1);
        let wires = Wires { link: link.clone(), stream: 1, room: bounded(1).1, input, ended: bounded(1).1 };
        (folder, link, Channels::new(wires), sender)
    }

    #[test]
    fn short_record_is_not_cut_and_a_long_one_fills_the_credit() {
        assert_eq!((part(0, HEADER - 1), part(0, HEADER)), (None, Some(0)));
        assert_eq!((part(WHOLE, HEADER + WHOLE - 1), part(WHOLE, HEADER + WHOLE)), (None, Some(WHOLE)));
        assert_eq!((part(WHOLE + 1, HEADER + WHOLE - 1), part(WHOLE + 1, HEADER + WHOLE)), (None, Some(WHOLE)));
        assert_eq!((part(1 << 20, 1 << 20), part(MAX_RECORD + 1, 1 << 20)), (Some(MAX_RECORD), Some(MAX_RECORD)));
    }

    #[test]
    fn output_ends_with_the_credit_of_a_bridge_that_is_gone() {
        let (_folder, link, channels, _sender) = opened(HEADER + WHOLE + 100);
        assert_eq!(block_on(channels.to.send(STDOUT, &[7; 10_000])), Err(Over));
        let data = channel::records(STDOUT, &[7; WHOLE + 100]);
        assert_eq!(link.says(), [ToCloud::StreamData { stream: 1, data }]);
    }

    #[test]
    fn input_is_given_back_after_its_last_record() {
        let (_folder, link, mut channels, sender) = opened(0);
        let data = channel::records(STDIN, &vec![0; MAX_RECORD]);
        let bytes = u64::try_from(data.len()).unwrap();
        link.hears(&ToEdge::StreamData { stream: 1, data: data.clone() });
        sender.try_send(data).unwrap();
        drop(sender);
        let record = block_on(channels.from.next()).unwrap();
        assert_eq!((record.channel, record.data.len()), (STDIN, MAX_RECORD));
        assert!(link.says().is_empty(), "the process has not taken it yet");
        assert_eq!(block_on(channels.from.next()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(link.says(), [ToCloud::StreamCredit { stream: 1, bytes }]);
    }

    #[test]
    fn record_without_an_end_is_an_error() {
        let (_folder, _link, mut channels, sender) = opened(0);
        sender.try_send(vec![STDIN, 0xff, 0, 0, 0]).unwrap();
        let error = block_on(channels.from.next()).unwrap_err();
        assert!(error.to_string().contains("are allowed"), "{error}");
    }
}
