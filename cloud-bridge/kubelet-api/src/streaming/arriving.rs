//! Bytes of WebSocket messages that are not whole yet or wait for the node: how many a user and all users may have.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use apimachinery::flow::Flow;
use apimachinery::shares::{Share, Shares};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What all users may have, and one of them...
const MESSAGES: (usize, usize) = (16 << 20, 4 << 20);
/// ...beside so much of each connection: clients copy their input in pieces of 32 KiB.
const OWN: usize = 64 << 10;
/// A share grows by so much.
const STEP: usize = 64 << 10;
/// Header of a control message of a client (RFC 6455, 5.2 and 5.5): two bytes, and the mask.
const CONTROL: usize = 6;

static ALL: LazyLock<Arc<Shares>> = LazyLock::new(|| Shares::new(MESSAGES.0, MESSAGES.1));

/// What has come on one connection since its last whole message.
#[derive(Debug, Clone)]
pub(super) struct Arriving(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    shares: Arc<Shares>,
    flow: Flow,
    bytes: usize,
    /// What may come before the share has to grow.
    room: usize,
    share: Option<Share>,
}

impl Arriving {
    pub(super) fn new(flow: &Flow) -> Self {
        Self::within(&ALL, flow)
    }

    fn within(shares: &Arc<Shares>, flow: &Flow) -> Self {
        let state = State { shares: Arc::clone(shares), flow: flow.clone(), bytes: 0, room: OWN, share: None };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next bytes may be read, however many these are.
    fn has_room(&self) -> bool {
        let state = &mut *self.state();
        if state.bytes < state.room {
            return true;
        }
        let grown = match &mut state.share {
            Some(share) => share.grow(STEP),
            none => {
                *none = state.shares.take(&state.flow, STEP);
                none.is_some()
            }
        };
        state.room += if grown { STEP } else { 0 };
        grown
    }

    fn came(&self, bytes: usize) {
        self.state().bytes += bytes;
    }

    /// Records a control message of `bytes` bytes, perhaps in the middle of another message.
    pub(super) fn control(&self, bytes: usize) {
        let mut state = self.state();
        state.bytes = state.bytes.saturating_sub(bytes + CONTROL);
    }

    /// A message was whole, and nothing of it is left.
    pub(super) fn done(&self) {
        let mut state = self.state();
        (state.bytes, state.room, state.share) = (0, OWN, None);
    }
}

/// A connection, of which the bytes that are read are counted. Without a share it breaks.
#[derive(Debug)]
pub(super) struct Counted<T> {
    below: T,
    arriving: Arriving,
}

impl<T> Counted<T> {
    pub(super) fn new(below: T, arriving: Arriving) -> Self {
        Self { below, arriving }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.arriving.has_room() {
            return Poll::Ready(Err(io::Error::other("too much input of this user waits at a time")));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.below).poll_read(cx, buf);
        self.arriving.came(buf.filled().len().saturating_sub(before));
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.below).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.below).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.below).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::user::UserInfo;

    use super::*;

    const PIECE: usize = 16 << 10;

    fn flow(name: &str) -> Flow {
        Flow::of(&UserInfo::new(name, ["people"]))
    }

    /// Bytes that come on a connection before it has no room, and no more than `most`.
    fn came(arriving: &Arriving, most: usize) -> usize {
        let pieces = std::iter::repeat_n((), most / PIECE).take_while(|()| arriving.has_room());
        pieces.map(|()| arriving.came(PIECE)).count() * PIECE
    }

    #[test]
    fn unfinished_messages_of_a_user_share_one_budget() {
        let shares = Shares::new(64 << 20, MESSAGES.1);
        let of = |user: &str| Arriving::within(&shares, &flow(user));
        let connections: Vec<Arriving> = (0..64).map(|_| of("eve")).collect();
        let all: usize = connections.iter().map(|one| came(one, 4 << 20)).sum();
        assert!(all <= MESSAGES.1 + 64 * OWN && all >= MESSAGES.1, "{all}");
        assert_eq!(came(&of("bob"), 4 << 20), 4 << 20, "others have their own");
        for arriving in &connections {
            arriving.done();
            assert_eq!(came(arriving, 32 << 10), 32 << 10, "pieces of kubectl always have room");
        }
        assert_eq!(came(&connections[0], 4 << 20), 4 << 20, "given back");
    }

    #[test]
    fn all_users_share_one_budget() {
        let shares = Shares::new(8 << 20, MESSAGES.1);
        let held: Vec<_> = (0..9).map(|user| Arriving::within(&shares, &flow(&user.to_string()))).collect();
        let all: usize = held.iter().map(|one| came(one, 4 << 20)).sum();
        assert!(all <= (8 << 20) + 9 * OWN, "{all}");
    }

    #[test]
    fn pings_take_no_room_and_make_none() {
        let shares = Shares::new(0, 0);
        let arriving = Arriving::within(&shares, &flow("eve"));
        for _ in 0..10_000 {
            arriving.came(CONTROL + 125);
            arriving.control(125);
        }
        assert!(arriving.has_room());
        arriving.came(OWN);
        arriving.came(CONTROL);
        arriving.control(0);
        assert!(!arriving.has_room());
    }
}
