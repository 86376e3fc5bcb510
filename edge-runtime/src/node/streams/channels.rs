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
            let least = HEADER + data.len().min(WHOLE);
            let room = loop {
                match self.link.stream_room(self.stream) {
                    room if room >= least => break room,
                    _ => self.room.recv().await.map_err(|_| Over)?,
                }
            };
            let (now, later) = data.split_at(data.len().min(room - HEADER).min(MAX_RECORD));
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
