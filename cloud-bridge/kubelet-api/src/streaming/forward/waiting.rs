//! Bytes of a client that wait for a node: how many there may be, and of which of its connections they are.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// What may wait of one client, before it is held up with all of its connections.
const CLIENT: usize = 1 << 20;
/// What may wait of all clients together...
const PROCESS: usize = 8 << 20;
/// ...beside so much of each, so that a client can go on whatever the others do.
const OWN: usize = 32 << 10;
/// Bytes of one entry, and what it takes beside them.
const PART: usize = 16 << 10;
const ENTRY: usize = 128;
/// What may come on a stream before its connection is whole. Clients wait until their streams are accepted.
pub(super) const EARLY: usize = 16 << 10;

static ALL: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(PROCESS)));

/// The room of one client.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    own: Arc<Semaphore>,
    client: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::within(&ALL)
    }
}

/// Room that is given back when dropped.
type Room = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl Budget {
    fn within(all: &Arc<Semaphore>) -> Self {
        let room = |bytes| Arc::new(Semaphore::new(bytes));
        Self { own: room(OWN), client: room(CLIENT), all: Arc::clone(all) }
    }

    /// Waits for room. `None` cannot come: nothing is ever closed.
    async fn take(&self, bytes: usize) -> Option<Room> {
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        let common = async {
            let client = Arc::clone(&self.client).acquire_many_owned(count).await.ok()?;
            Some((client, Some(Arc::clone(&self.all).acquire_many_owned(count).await.ok()?)))
        };
        tokio::select! {
            biased;
            own = Arc::clone(&self.own).acquire_many_owned(count) => Some((own.ok()?, None)),
            room = common => room,
        }
    }
}

/// Bytes of the client, with their room. The end of the channel is the end of the bytes.
pub(super) type Waiting = mpsc::UnboundedReceiver<(Bytes, Room)>;

/// The client's end of one connection.
pub(super) struct Feed {
    /// `None` after the last bytes.
    bytes: Option<mpsc::UnboundedSender<(Bytes, Room)>>,
    budget: Budget,
}

impl Feed {
    pub(super) fn new(budget: &Budget) -> (Self, Waiting) {
        let (bytes, waiting) = mpsc::unbounded_channel();
        (Self { bytes: Some(bytes), budget: budget.clone() }, waiting)
    }

    /// Waits for room. A connection that has ended takes everything.
    pub(super) async fn give(&self, data: &[u8]) {
        let Some(sender) = &self.bytes else { return };
        for part in data.chunks(PART) {
            tokio::select! {
                room = self.budget.take(part.len() + ENTRY) => {
                    // A copy: a part of a buffer would keep all of it.
                    let _ = room.map(|room| sender.send((Bytes::copy_from_slice(part), room)));
                }
                () = sender.closed() => return,
            }
        }
    }

    pub(super) fn end(&mut self) {
        self.bytes = None;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// How many parts of this size find room.
    fn given(feeds: &[Feed], part: &[u8]) -> usize {
        feeds.iter().cycle().take_while(|feed| feed.give(part).now_or_never().is_some()).count()
    }

    #[test]
    fn all_connections_of_a_client_share_one_budget() {
        let all = Arc::new(Semaphore::new(PROCESS));
        for size in [1, PART] {
            let budget = Budget::within(&all);
            let (feeds, mut waiting): (Vec<_>, Vec<_>) = (0..255).map(|_| Feed::new(&budget)).unzip();
            let parts = given(&feeds, &vec![0; size]);
            assert!(parts * (size + ENTRY) <= CLIENT + OWN && parts > 50, "{size}: {parts}");
            assert!(waiting[0].try_recv().is_ok() && feeds[7].give(&[0]).now_or_never().is_some());
        }
        assert_eq!(all.available_permits(), PROCESS, "given back");
    }

    #[test]
    fn clients_that_stand_still_leave_room_for_others() {
        let all = Arc::new(Semaphore::new(2 * CLIENT));
        let held: Vec<_> = (0..4).map(|_| Feed::new(&Budget::within(&all))).collect();
        assert!(held.iter().all(|(feed, _)| given(std::slice::from_ref(feed), &[0; PART]) > 0));
        assert!(all.available_permits() < PART + ENTRY);
        let (other, mut waiting) = Feed::new(&Budget::within(&all));
        for _ in 0..100 {
            assert!(other.give(&[0; PART]).now_or_never().is_some() && waiting.try_recv().is_ok());
        }
    }
}
