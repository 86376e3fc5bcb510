//! Requests as streams of the link: the connection of frames with the daemon. Each stream holds no more bytes than it
//! has granted. Does not know what the bytes mean.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use edge_protocol::channel::{HEADER, Record, Records};
use edge_protocol::message::ApiRequest;
use sampan_api_control::frame::{self, Frame, Frames};
use sampan_api_control::{INITIAL_CREDIT, Kind, MAX_DATA, MAX_REQUESTS};
use sampan_sys::vec_map::VecMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Streams that are left to pods without any: some pods with many watches take not all of them.
const RESERVED: usize = 4;
/// Bytes that wait for the socket, beyond which bodies wait and no stream is opened: pods that open and cancel requests
/// would gather them there while the daemon does not read.
const FULL: usize = 64 << 10;
const CHUNK: usize = 16 << 10;

/// The connection.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    open: RefCell<VecMap<u64, Rc<Slot>>>,
    newest: Cell<u64>,
    out: RefCell<Vec<u8>>,
    /// `out` has bytes.
    work: Notify,
    /// `out` has room.
    room: Notify,
    is_closed: Cell<bool>,
}

/// A stream's state.
#[derive(Debug)]
struct Slot {
    inbox: RefCell<Records>,
    /// Bytes that the daemon may still send.
    window: Cell<u32>,
    /// Bytes that it accepts.
    credit: Cell<u32>,
    ended: RefCell<Option<String>>,
    reader: RefCell<Option<Waker>>,
    /// `credit` has grown, or the stream has ended.
    more: Notify,
}

/// One request. Its end cancels the request.
#[derive(Debug)]
pub(crate) struct Stream {
    relay: Rc<Relay>,
    number: u64,
    slot: Rc<Slot>,
    /// Bytes taken since the last grant.
    taken: Cell<u32>,
}

impl Relay {
    /// Opens a stream. `None`: too many are open, or the connection has ended, or does not move. `is_first`: the pod has
    /// no other.
    pub(crate) fn open(self: &Rc<Self>, request: &ApiRequest, is_first: bool) -> Option<Stream> {
        let most = if is_first { MAX_REQUESTS } else { MAX_REQUESTS - RESERVED };
        if self.is_closed.get() || self.open.borrow().len() >= most || self.out.borrow().len() > FULL {
            return None;
        }
        let number = self.newest.get() + 1;
        self.newest.set(number);
        let slot = Rc::new(Slot {
            inbox: RefCell::default(),
            window: Cell::new(INITIAL_CREDIT),
            credit: Cell::new(INITIAL_CREDIT),
            ended: RefCell::default(),
            reader: RefCell::default(),
            more: Notify::new(),
        });
        self.open.borrow_mut().insert(number, Rc::clone(&slot));
        let request = serde_json::to_vec(request).unwrap_or_default();
        self.say(|out| frame::write(number, Kind::Open, &request, out));
        Some(Stream { relay: Rc::clone(self), number, slot, taken: Cell::new(0) })
    }

    /// Number of open streams.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.open.borrow().len()
    }

    fn say(&self, what: impl FnOnce(&mut Vec<u8>)) {
        if !self.is_closed.get() {
            what(&mut self.out.borrow_mut());
            self.work.notify_one();
        }
    }

    /// Ends all streams.
    pub(crate) fn close(&self, why: &str) {
        self.is_closed.set(true);
        self.out.take();
        let open = self.open.take();
        for slot in open.values() {
            slot.end(why);
        }
        self.room.notify_waiters();
    }

    /// Moves frames until the connection fails.
    ///
    /// # Errors
    /// It has ended, or the daemon sends no frames.
    pub(crate) async fn run(
        &self,
        read: impl AsyncRead + Unpin,
        write: impl AsyncWrite + Unpin,
        begun: &[u8],
    ) -> io::Result<()> {
        tokio::select! {
            ended = self.hear(read, begun) => ended,
            ended = self.speak(write) => ended,
        }
    }

    async fn speak(&self, mut write: impl AsyncWrite + Unpin) -> io::Result<()> {
        loop {
            let bytes = self.out.take();
            if bytes.is_empty() {
                self.work.notified().await;
                continue;
            }
            write.write_all(&bytes).await?;
            self.room.notify_waiters();
        }
    }

    async fn hear(&self, mut read: impl AsyncRead + Unpin, begun: &[u8]) -> io::Result<()> {
        let mut frames = Frames::default();
        frames.push(begun);
        let mut chunk = vec![0; CHUNK];
        loop {
            while let Some(frame) = frames.next_frame().map_err(io::Error::other)? {
                self.take(frame)?;
            }
            match read.read(&mut chunk).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => frames.push(chunk.get(..length).unwrap_or_default()),
            }
        }
    }

    fn take(&self, Frame { stream, kind, payload }: Frame) -> io::Result<()> {
        let slot = self.open.borrow().get(&stream).cloned();
        // A stream that has ended is normal.
        let Some(slot) = slot else { return Ok(()) };
        match kind {
            Kind::Data => {
                let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                let left = slot.window.get().checked_sub(length);
                slot.window.set(left.ok_or_else(|| io::Error::other("more bytes than were granted"))?);
                slot.inbox.borrow_mut().push(&payload);
                slot.wake();
            }
            Kind::Credit => {
                let more = frame::credit(&payload).ok_or_else(|| io::Error::other("a grant of no number"))?;
                slot.credit.set(slot.credit.get().saturating_add(more));
                slot.more.notify_one();
            }
            Kind::End => {
                self.open.borrow_mut().remove(&stream);
                slot.end(&String::from_utf8_lossy(&payload));
            }
            Kind::Open => return Err(io::Error::other("the daemon opens no stream")),
        }
        Ok(())
    }
}

impl Slot {
    fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn end(&self, why: &str) {
        self.ended.borrow_mut().get_or_insert_with(|| why.to_owned());
        self.wake();
        self.more.notify_one();
    }
}

impl Stream {
    /// Sends bytes, as fast as they are accepted.
    ///
    /// # Errors
    /// The stream has ended.
    pub(crate) async fn send(&self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some(why) = self.ended() {
                return Err(why);
            }
            let credit = self.slot.credit.get();
            if credit == 0 {
                self.slot.more.notified().await;
                continue;
            }
            if self.relay.out.borrow().len() > FULL {
                self.relay.room.notified().await;
                continue;
            }
            let take = rest.len().min(MAX_DATA).min(usize::try_from(credit).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at(take);
            self.slot.credit.set(credit - u32::try_from(take).unwrap_or(credit));
            self.relay.say(|out| frame::write(self.number, Kind::Data, now, out));
            rest = later;
        }
        Ok(())
    }

    /// The next record of the answer.
    ///
    /// # Errors
    /// The stream has ended, with its reason; empty: it has ended without one.
    pub(crate) fn poll_record(&self, context: &mut Context<'_>) -> Poll<Result<Record, String>> {
        let next = self.slot.inbox.borrow_mut().next_record();
        match next {
            Ok(Some(record)) => {
                self.taken(record.data.len() + HEADER);
                return Poll::Ready(Ok(record));
            }
            Ok(None) => {}
            Err(too_long) => return Poll::Ready(Err(too_long.to_string())),
        }
        if let Some(why) = self.ended() {
            return Poll::Ready(Err(why));
        }
        self.slot.reader.replace(Some(context.waker().clone()));
        Poll::Pending
    }

    fn ended(&self) -> Option<String> {
        self.slot.ended.borrow().clone()
    }

    /// Lets the daemon send as many bytes again.
    fn taken(&self, bytes: usize) {
        let taken = self.taken.get() + u32::try_from(bytes).unwrap_or(u32::MAX);
        if taken < INITIAL_CREDIT / 2 {
            return self.taken.set(taken);
        }
        self.taken.set(0);
        if self.slot.ended.borrow().is_none() {
            self.slot.window.set(self.slot.window.get() + taken);
            self.relay.say(|out| frame::write_credit(self.number, taken, out));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.relay.open.borrow_mut().remove(&self.number).is_some() {
            self.relay.say(|out| frame::write(self.number, Kind::End, b"the pod has gone", out));
        }
    }
}

#[cfg(test)]
mod tests;
