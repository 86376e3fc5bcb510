//! Runs a controller: it reads all existing objects once, gets each later change, and reconciles one key after the
//! other. After a crash the next start reads everything again.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::queue::Queue;
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::{Debt, Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::panics;
use sampan_log::printable::printable;

/// Approximate time for which a controller may use the thread before others get their turn.
const TURN: Duration = Duration::from_millis(2);

/// What could not be read at the start is tried again after this.
const RETRY: Duration = Duration::from_secs(1);

/// An object for a controller: at its start each existing one as if it were new, then each change.
pub(super) struct Seen<'a> {
    pub(super) storage: &'a str,
    pub(super) key: &'a ObjectKey,
    pub(super) before: Option<&'a Stored>,
    /// `None` if it was deleted.
    pub(super) after: Option<&'a Stored>,
}

/// A controller. It can restore its state from the objects.
pub(super) trait Controller: Default + Send + 'static {
    type Key: Clone + Ord + Debug + Send + 'static;

    /// Name in the log.
    const NAME: &'static str;

    /// The storages that are read at the start, in this order.
    fn storages(inner: &Inner) -> Vec<String>;

    /// Enqueues the work that a change of an object causes. Called during a write: it reads nothing else.
    fn keys(inner: &Inner, seen: &Seen<'_>, queue: &Queue<Self::Key>);

    /// Reconciles a key, from any state. Ends early if its time slice is over, and adds a key for the rest.
    fn reconcile(&mut self, turn: &mut Turn<'_, Self::Key>, key: &Self::Key) -> ApiResult<()>;
}

/// Context of a controller while it reconciles a key.
pub(super) struct Turn<'a, K> {
    pub(super) inner: &'a Inner,
    pub(super) store: &'a mut Store,
    pub(super) queue: &'a Queue<K>,
    end: Instant,
}

impl<K> Turn<'_, K> {
    /// Whether others wait. Asked after each step, so that each turn does one at the least.
    pub(super) fn over(&self) -> bool {
        Instant::now() >= self.end
    }
}

/// The storages of all resources that are served, each once.
pub(super) fn served(inner: &Inner, wanted: impl Fn(&crate::resource::Resource) -> bool) -> BTreeSet<String> {
    inner
        .registry
        .all()
        .iter()
        .filter(|resource| wanted(resource))
        .map(|resource| resource.storage.to_string())
        .collect()
}

/// Closes the queue when the storage, and with it this observer, is dropped.
struct Observer<K>(Queue<K>);

impl<K> Drop for Observer<K> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Has a controller follow the storage from now on.
pub(super) fn start<C: Controller>(inner: &Arc<Inner>) {
    let queue = Queue::new();
    let (observer, weak) = (Observer(queue.clone()), Arc::downgrade(inner));
    inner.store().observe(Box::new(move |storage, change| {
        let Some(inner) = weak.upgrade() else { return };
        let before = change.before.as_deref();
        let seen = Seen { storage, key: &change.object.key, before, after: change.now() };
        C::keys(&inner, &seen, &observer.0);
    }));
    let weak = Arc::downgrade(inner);
    tokio::spawn(panics::keep(C::NAME, move || run::<C>(Weak::clone(&weak), queue.clone())));
}

async fn run<C: Controller>(inner: Weak<Inner>, queue: Queue<C::Key>) {
    list::<C>(&inner, &queue).await;
    let (mut controller, mut debt) = (C::default(), Debt::default());
    while let Some(key) = queue.next().await {
        let Some(inner) = inner.upgrade() else { return };
        let durable = inner.durable.clone();
        let before = durable.bytes();
        turn(&inner, &mut controller, &queue, key);
        let waits = debt.waits(durable.bytes().saturating_sub(before));
        let written = waits.then(|| inner.store().written());
        drop(inner);
        tokio::task::yield_now().await;
        if let Some(written) = written {
            // Where the disk refuses, the server ends.
            let _ = durable.reached(written).await;
        }
    }
}

/// Reconciles this key and, within the time slice, the next ones.
fn turn<C: Controller>(inner: &Inner, controller: &mut C, queue: &Queue<C::Key>, first: C::Key) {
    let mut turn = Turn { inner, store: &mut inner.store(), queue, end: Instant::now() + TURN };
    let mut next = Some(first);
    while let Some(key) = next {
        // The hook has logged the panic.
        match panics::shield(C::NAME, || controller.reconcile(&mut turn, &key)) {
            Some(Ok(())) => queue.done(&key),
            Some(Err(error)) => {
                let shown = printable(format!("{key:?}"));
                let wait = queue.failed(key);
                log::warn!("{} of {shown}, again in {wait:?}: {error}", C::NAME);
            }
            None => drop(queue.failed(key)),
        }
        next = if turn.over() { None } else { queue.try_next() };
    }
}

/// Passes all existing objects to the controller, some at a time.
async fn list<C: Controller>(inner: &Weak<Inner>, queue: &Queue<C::Key>) {
    let Some(storages) = inner.upgrade().map(|inner| C::storages(&inner)) else { return };
    for storage in storages {
        let mut after = None;
        loop {
            let Some(inner) = inner.upgrade() else { return };
            let read = page::<C>(&inner, queue, &storage, &mut after);
            drop(inner);
            match read {
                Ok(false) => break,
                Ok(true) => {}
                Err(error) => {
                    log::warn!("{}, again in {RETRY:?}: {error}", C::NAME);
                    tokio::time::sleep(RETRY).await;
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Passes on the objects after this one, within a time slice: then `after` is the last of them. Returns whether there
/// may be more. One at a time: a parsed object may take sixteen times its size in the file.
fn page<C: Controller>(
    inner: &Inner,
    queue: &Queue<C::Key>,
    storage: &str,
    after: &mut Option<ObjectKey>,
) -> Result<bool, StoreError> {
    let end = Instant::now() + TURN;
    loop {
        let next = inner.store().list(storage, None, after.as_ref(), Some(1))?.pop();
        let Some(stored) = next else { return Ok(false) };
        let seen = Seen { storage, key: &stored.key, before: None, after: Some(&stored) };
        C::keys(inner, &seen, queue);
        *after = Some(stored.key.clone());
        if Instant::now() >= end {
            return Ok(true);
        }
    }
}
