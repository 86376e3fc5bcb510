//! When what was written is on the disk. A thread of its own syncs the write-ahead log: the thread that serves waits
//! for no disk, and writes that come while one sync runs share the next. Knows revisions and a way to sync, no SQL.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use apimachinery::panics;
use tokio::sync::watch;

/// Bytes of large bodies that may wait for a sync, and bytes that one long piece of work writes without one. Further ones are
/// not written before it: a small write waits for few megabytes, on any disk.
const UNSYNCED_MAX: u64 = 1 << 20;

/// Syncs all that was written before the call.
pub(crate) type Sync = Box<dyn FnMut() -> io::Result<()> + Send>;

/// A write may not be on the disk: the state after a restart is unknown.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the state file was not synced: {0}")]
pub(crate) struct Unsynced(Arc<str>);

#[derive(Debug, Clone, Default)]
struct State {
    /// Everything up to this revision is on the disk.
    synced: u64,
    /// Bytes of large bodies that were written until then.
    large: u64,
    failed: Option<Unsynced>,
}

impl State {
    /// Whether a large body may be written after `large` bytes of such bodies. Writers do not wait for a disk that has failed:
    /// its error is their answer.
    fn has_room(&self, large: u64) -> bool {
        self.failed.is_some() || large.saturating_sub(self.large) < UNSYNCED_MAX
    }
}

/// Tells when a revision is on the disk.
#[derive(Debug, Clone)]
pub(crate) struct Durable {
    state: watch::Receiver<State>,
    written: Arc<Written>,
}

/// Bytes that were written since the start.
#[derive(Debug, Default)]
struct Written {
    all: AtomicU64,
    /// Those of large bodies; changed with `Wanted` locked.
    large: AtomicU64,
}

/// Bytes that a long piece of work, as a controller's or the deletion of a collection, has written since it last waited
/// for the disk. Work of others does not count: however much they write, it goes on after a sync.
#[derive(Debug, Default)]
pub(crate) struct Debt(u64);

impl Debt {
    /// Adds what was written. Whether the work has to wait until the disk has all of it; then it is forgotten.
    pub(crate) fn waits(&mut self, bytes: u64) -> bool {
        self.0 = self.0.saturating_add(bytes);
        let waits = self.0 >= UNSYNCED_MAX;
        if waits {
            self.0 = 0;
        }
        waits
    }
}

impl Durable {
    /// Returns once what was written up to `rev` would survive a power cut.
    pub(crate) async fn reached(&self, rev: u64) -> Result<(), Unsynced> {
        let mut state = self.state.clone();
        let state = state.wait_for(|state| state.synced >= rev || state.failed.is_some()).await;
        match state {
            Ok(state) if state.synced >= rev => Ok(()),
            Ok(state) => Err(state.failed.clone().unwrap_or_else(closed)),
            Err(_) => Err(closed()),
        }
    }

    /// Whether it would survive one already.
    pub(crate) fn has(&self, rev: u64) -> bool {
        self.state.borrow().synced >= rev
    }

    /// Bytes that were written since the start.
    pub(crate) fn bytes(&self) -> u64 {
        self.written.all.load(Ordering::Relaxed)
    }

    fn large(&self) -> u64 {
        self.written.large.load(Ordering::Relaxed)
    }

    /// Whether the disk has taken enough of the large bodies for another one. Writers do not wait for a storage that is
    /// closed.
    pub(crate) fn has_room(&self) -> bool {
        let large = self.large();
        self.state.has_changed().is_err() || self.state.borrow().has_room(large)
    }

    /// Returns once the disk has room. It may be taken again by the next await.
    pub(crate) async fn room(&self) {
        let mut state = self.state.clone();
        // An error says that the storage is closed, which the write will find.
        let _ = state.wait_for(|state| state.has_room(self.large())).await;
    }

    /// Returns when the disk has refused a sync.
    pub(crate) async fn failed(&self) -> Unsynced {
        let mut state = self.state.clone();
        match state.wait_for(|state| state.failed.is_some()).await {
            Ok(state) => state.failed.clone().unwrap_or_else(closed),
            // The storage was closed in order.
            Err(_) => std::future::pending().await,
        }
    }
}

fn closed() -> Unsynced {
    Unsynced("it is closed".into())
}

#[derive(Debug, Default)]
struct Wanted {
    written: u64,
    /// Something that has no revision was written.
    more: bool,
    end: bool,
}

/// The thread that syncs; it ends, after a last sync, when this is dropped.
pub(super) struct Syncer {
    wanted: Arc<(Mutex<Wanted>, Condvar)>,
    state: watch::Receiver<State>,
    written: Arc<Written>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread; what was written up to `synced` is on the disk already.
    pub(super) fn start(synced: u64, sync: Sync) -> io::Result<Self> {
        let wanted = Arc::new((Mutex::new(Wanted { written: synced, more: false, end: false }), Condvar::new()));
        let (tell, state) = watch::channel(State { synced, large: 0, failed: None });
        let written = Arc::<Written>::default();
        let (shared, count) = (Arc::clone(&wanted), Arc::clone(&written));
        let thread =
            std::thread::Builder::new().name("api-sync".to_owned()).stack_size(64 * 1024).spawn(move || {
                // Writes after its end would never be on the disk.
                let ended = panics::shield("sync of the state file", || work(&shared, &count, &tell, sync));
                if ended.is_none() {
                    refused(&tell, "the thread that syncs has panicked");
                }
            })?;
        Ok(Self { wanted, state, written, thread: Some(thread) })
    }

    /// The revision `rev` was written, with `bytes` in all, of which `large` are of a large body.
    pub(super) fn wrote(&self, rev: u64, bytes: u64, large: usize) {
        let (wanted, wake) = &*self.wanted;
        let mut now = wanted.lock().unwrap_or_else(PoisonError::into_inner);
        now.written = rev;
        self.written.all.fetch_add(bytes, Ordering::Relaxed);
        self.written.large.fetch_add(large as u64, Ordering::Relaxed);
        drop(now);
        wake.notify_one();
    }

    /// Something was written that has no revision of its own.
    pub(super) fn wrote_more(&self) {
        let (wanted, wake) = &*self.wanted;
        wanted.lock().unwrap_or_else(PoisonError::into_inner).more = true;
        wake.notify_one();
    }

    /// Whether the disk has refused.
    pub(super) fn failed(&self) -> bool {
        self.state.borrow().failed.is_some()
    }

    pub(super) fn durable(&self) -> Durable {
        Durable { state: self.state.clone(), written: Arc::clone(&self.written) }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        let (wanted, wake) = &*self.wanted;
        wanted.lock().unwrap_or_else(PoisonError::into_inner).end = true;
        wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(shared: &(Mutex<Wanted>, Condvar), count: &Written, tell: &watch::Sender<State>, mut sync: Sync) {
    let (wanted, wake) = shared;
    let mut synced = tell.borrow().synced;
    loop {
        let (written, large) = {
            let mut now = wanted.lock().unwrap_or_else(PoisonError::into_inner);
            while now.written == synced && !now.more && !now.end {
                now = wake.wait(now).unwrap_or_else(PoisonError::into_inner);
            }
            if now.written == synced && !now.more {
                return;
            }
            now.more = false;
            (now.written, count.large.load(Ordering::Relaxed))
        };
        match sync() {
            Ok(()) => {
                synced = written;
                tell.send_modify(|state| (state.synced, state.large) = (written, large));
            }
            Err(error) => {
                // A second sync would succeed and say nothing: the kernel reports a lost page once.
                return refused(tell, &error.to_string());
            }
        }
    }
}

fn refused(tell: &watch::Sender<State>, why: &str) {
    tell.send_modify(|state| state.failed = Some(Unsynced(why.into())));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// A sync that ends when it is told how.
    fn by_hand() -> (Sync, mpsc::Receiver<()>, mpsc::Sender<io::Result<()>>) {
        let (began, seen) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let sync = move || {
            let _ = began.send(());
            ended.recv().unwrap_or(Ok(()))
        };
        (Box::new(sync), seen, end)
    }

    async fn waits(durable: &Durable, rev: u64) -> bool {
        tokio::time::timeout(Duration::from_millis(50), durable.reached(rev)).await.is_err()
    }

    #[tokio::test]
    async fn writes_that_come_during_a_sync_share_the_next() {
        let (sync, began, end) = by_hand();
        let syncer = Syncer::start(5, sync).unwrap();
        let durable = syncer.durable();
        durable.reached(5).await.unwrap();
        syncer.wrote(6, 7, 0);
        began.recv().unwrap();
        for rev in 7..=100 {
            syncer.wrote(rev, 7, 0);
        }
        assert!(waits(&durable, 6).await);
        end.send(Ok(())).unwrap();
        durable.reached(6).await.unwrap();
        began.recv().unwrap();
        assert!(waits(&durable, 7).await, "it was written after that sync had begun");
        end.send(Ok(())).unwrap();
        durable.reached(100).await.unwrap();
        assert!(began.try_recv().is_err(), "one sync for all of them");
    }

    #[test]
    fn long_work_waits_for_the_disk_after_a_megabyte() {
        let mut debt = Debt::default();
        let waits = [1 << 19, (1 << 19) - 1, 1, 0, 1 << 22, 1].map(|bytes| debt.waits(bytes));
        assert_eq!(waits, [false, false, true, false, true, false]);
    }

    #[tokio::test]
    async fn large_bodies_wait_for_the_sync_of_those_before() {
        let (sync, began, end) = by_hand();
        let syncer = Syncer::start(0, sync).unwrap();
        let durable = syncer.durable();
        syncer.wrote(1, 7, (1 << 20) - 1);
        began.recv().unwrap();
        assert!(durable.has_room(), "there is some");
        syncer.wrote(2, 7, 1);
        syncer.wrote(3, 7, 0);
        assert!(!durable.has_room());
        end.send(Ok(())).unwrap();
        durable.room().await;
        assert!(durable.has(1) && durable.has_room(), "the second sync has one byte to write");
        syncer.wrote(4, 7, 2 << 20);
        assert!(!durable.has_room());
        drop(end);
        durable.room().await;
        assert_eq!((durable.has(4), durable.large(), durable.bytes()), (true, 3 << 20, 28));
    }

    #[tokio::test]
    async fn a_disk_that_refuses_is_never_believed_again() {
        let (sync, began, end) = by_hand();
        let syncer = Syncer::start(0, sync).unwrap();
        let durable = syncer.durable();
        syncer.wrote(1, 7, 2 << 20);
        began.recv().unwrap();
        assert!(!durable.has_room());
        end.send(Err(io::Error::from_raw_os_error(5))).unwrap();
        assert!(durable.reached(1).await.unwrap_err().to_string().contains("not synced"));
        durable.failed().await;
        durable.room().await;
        syncer.wrote(2, 7, 0);
        assert!(durable.reached(2).await.is_err());
        assert!(began.try_recv().is_err());
    }

    #[tokio::test]
    async fn panic_of_the_thread_is_told_as_a_disk_that_refuses() {
        let syncer = Syncer::start(0, Box::new(|| -> io::Result<()> { panic!("a fault") })).unwrap();
        let durable = syncer.durable();
        syncer.wrote(1, 7, 2 << 20);
        assert!(durable.reached(1).await.is_err());
        let told = tokio::time::timeout(Duration::from_secs(10), durable.failed()).await;
        assert!(told.expect("the server ends").to_string().contains("panicked"));
        assert!(syncer.failed(), "nothing is written back at the end");
        durable.room().await;
        assert!(durable.has_room());
    }

    #[tokio::test]
    async fn the_end_waits_for_what_was_written() {
        let (sync, began, end) = by_hand();
        let syncer = Syncer::start(0, sync).unwrap();
        let durable = syncer.durable();
        end.send(Ok(())).unwrap();
        syncer.wrote(1, 7, 0);
        drop(syncer);
        began.try_recv().unwrap();
        durable.reached(1).await.unwrap();
        assert!(durable.reached(2).await.is_err());
    }
}
