//! One watch for several controllers. Each follower has a queue, in which a newer state of an object replaces an older
//! one: a slow controller misses no object. The watch waits a moment for a full queue; then the queue is dropped, and
//! the controller gets a new list when it continues.
//!
//! A list starts for all followers at once, and it is requested only when each of them knows: a controller writes
//! nothing during a list, because the list would lack its writes. A follower that does not respond in time gets another
//! list. Knows no kind, and stores no objects: for a new follower everything is listed again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use apimachinery::key::ObjectKey;
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::Event;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Maximum content of one queue. Queues share their objects, and the one that is furthest behind has those of the others: so
/// the bytes are about those of all.
const MOST: Most = Most { objects: 1 << 14, bytes: 16 << 20 };
/// Maximum time for which a full queue holds back the other followers.
const HOLD: Duration = Duration::from_secs(2);
/// Maximum time to wait until all followers know that a list begins: longer than a controller waits for an answer of the API.
const PATIENCE: Duration = Duration::from_secs(60);

/// An object with a name and a size.
pub(crate) trait Named {
    /// Its namespace and name.
    fn key(&self) -> ObjectKey;

    /// Length of its JSON as far as it is kept, in bytes.
    fn cost(&self) -> usize;
}

/// How many objects with news, and how many bytes of them.
#[derive(Debug, Clone, Copy)]
struct Most {
    objects: usize,
    bytes: usize,
}

/// The followers of one watch.
#[derive(Debug)]
pub(crate) struct Followers<T> {
    most: Most,
    hold: Duration,
    patience: Duration,
    state: Mutex<State<T>>,
    /// Notifies the watch that a follower joined, left, knows of a new list, or has room in its queue.
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    queues: BTreeMap<u64, Queue<T>>,
    next: u64,
    /// Whether a follower joined since the watch started, or continues without its queue.
    joined: bool,
    /// Bytes of the last object that needed room.
    wanted: usize,
}

impl<T> Default for Followers<T> {
    fn default() -> Self {
        let state = State { queues: BTreeMap::new(), next: 0, joined: false, wanted: 0 };
        Self { most: MOST, hold: HOLD, patience: PATIENCE, state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<T> State<T> {
    fn needs_another_list(&self) -> bool {
        self.joined || self.queues.is_empty()
    }

    fn has_room(&self, most: Most) -> bool {
        self.queues.values().all(|queue| queue.has_room(most, self.wanted))
    }

    fn has_heard(&self) -> bool {
        self.queues.values().all(|queue| !queue.begins)
    }
}

impl<T> Followers<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, met: impl Fn(&State<T>) -> bool) {
        loop {
            let changed = self.changed.notified();
            if met(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Adds a follower, which first gets a list.
    pub(crate) fn join(self: &Arc<Self>) -> Follower<T> {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.joined = true;
        state.queues.insert(id, Queue::default());
        drop(state);
        self.changed.notify_one();
        Follower { followers: Arc::clone(self), id }
    }
}

impl<T: Named> Followers<T> {
    /// Watches for the followers, while there are any. `begin` begins a watch with a list; `what` names its objects in the log.
    pub(crate) async fn watch<S: Stream<Item = Result<Event<T>, String>>>(&self, what: &str, begin: impl Fn() -> S) {
        loop {
            self.until(|state| !state.queues.is_empty()).await;
            self.state().joined = false;
            let mut events = pin!(begin());
            loop {
                tokio::select! {
                    biased;
                    () = self.until(State::needs_another_list) => break,
                    Some(event) = events.next() => match event {
                        Ok(event) => self.tell(event).await,
                        Err(error) => log::warn!("watching {what}: {error}"),
                    },
                }
            }
        }
    }

    async fn tell(&self, event: Event<T>) {
        match event {
            Event::Init => {
                self.each(Queue::begin);
                if timeout(self.patience, self.until(State::has_heard)).await.is_err() {
                    log::warn!(
                        "a controller has not read its news for {} s: it lists all again",
                        self.patience.as_secs()
                    );
                    // The list may lack a write of the follower from now on, and at its end the object would count as
                    // deleted.
                    self.each(|queue| {
                        if queue.begins {
                            queue.give_up();
                        }
                    });
                }
            }
            Event::InitDone => self.each(Queue::end),
            Event::InitApply(object) | Event::Apply(object) => self.put(object, News::Is).await,
            Event::Delete(object) => self.put(object, News::Gone).await,
        }
    }

    async fn put(&self, object: T, news: fn(Arc<T>) -> News<T>) {
        self.state().wanted = object.cost();
        let _ = timeout(self.hold, self.until(|state| state.has_room(self.most))).await;
        let (key, object) = (Arc::new(object.key()), Arc::new(object));
        self.each(|queue| queue.put(&key, news(Arc::clone(&object)), self.most));
    }

    fn each(&self, work: impl Fn(&mut Queue<T>)) {
        for queue in self.state().queues.values_mut() {
            work(queue);
            if let Some(waker) = queue.waker.take() {
                waker.wake();
            }
        }
    }
}

#[derive(Debug)]
enum News<T> {
    Is(Arc<T>),
    Gone(Arc<T>),
}

impl<T: Named> News<T> {
    fn cost(&self) -> usize {
        match self {
            Self::Is(object) | Self::Gone(object) => object.cost(),
        }
    }
}

/// Which part of the watch the entries of a queue are of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The first list has not started yet.
    #[default]
    Nothing,
    /// The queue was dropped, because the follower was too far behind.
    GivenUp,
    /// The list under way.
    List,
    /// The list that has ended, with the number of its remaining entries.
    EndOfList(usize),
    Changes,
}

/// Unread changes of a follower.
#[derive(Debug)]
struct Queue<T> {
    /// A list begins.
    begins: bool,
    part: Part,
    /// The names of objects with news, in the order of their oldest.
    order: VecDeque<Arc<ObjectKey>>,
    news: HashMap<Arc<ObjectKey>, News<T>>,
    /// Total cost of the changes.
    bytes: usize,
    waker: Option<Waker>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let (order, news) = (VecDeque::new(), HashMap::new());
        Self { begins: false, part: Part::Nothing, order, news, bytes: 0, waker: None }
    }
}

impl<T> Queue<T> {
    /// Whether there is room for an object of this cost. A single one always fits: another list would bring it again.
    fn has_room(&self, most: Most, cost: usize) -> bool {
        self.order.is_empty() || (self.order.len() < most.objects && self.bytes.saturating_add(cost) <= most.bytes)
    }

    fn is_too_long(&self, most: Most) -> bool {
        self.order.len() > most.objects || (self.order.len() > 1 && self.bytes > most.bytes)
    }
}

impl<T: Named> Queue<T> {
    /// Starts a list, which repeats all unread changes.
    fn begin(&mut self) {
        *self = Self { begins: true, part: Part::List, waker: self.waker.take(), ..Self::default() };
    }

    fn end(&mut self) {
        if self.part == Part::List {
            self.part = Part::EndOfList(self.order.len());
        }
    }

    fn put(&mut self, key: &Arc<ObjectKey>, news: News<T>, most: Most) {
        if matches!(self.part, Part::Nothing | Part::GivenUp) {
            return;
        }
        self.bytes += news.cost();
        match self.news.insert(Arc::clone(key), news) {
            Some(older) => self.bytes -= older.cost(),
            None => self.order.push_back(Arc::clone(key)),
        }
        if self.is_too_long(most) {
            let (objects, bytes) = (self.order.len(), self.bytes);
            log::warn!("a controller is {objects} objects of {bytes} bytes behind: it lists all again");
            self.give_up();
        }
    }

    /// Drops the unread changes. The follower gets a new list when it continues.
    fn give_up(&mut self) {
        *self = Self { part: Part::GivenUp, waker: self.waker.take(), ..Self::default() };
    }

    fn next(&mut self) -> Option<Event<Arc<T>>> {
        if std::mem::take(&mut self.begins) {
            return Some(Event::Init);
        }
        if self.part == Part::EndOfList(0) {
            self.part = Part::Changes;
            return Some(Event::InitDone);
        }
        let key = self.order.pop_front()?;
        if let Part::EndOfList(left) = &mut self.part {
            *left -= 1;
        }
        let news = self.news.remove(&key)?;
        self.bytes -= news.cost();
        Some(match news {
            News::Gone(object) => Event::Delete(object),
            News::Is(object) if self.part == Part::Changes => Event::Apply(object),
            // The same for an object that changed meanwhile: at the end of a list, missing objects count as deleted.
            News::Is(object) => Event::InitApply(object),
        })
    }
}

/// The events for one controller. Dropping it removes the follower and its queue.
#[derive(Debug)]
pub(crate) struct Follower<T> {
    followers: Arc<Followers<T>>,
    id: u64,
}

impl<T: Named> Stream for Follower<T> {
    type Item = Event<Arc<T>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.followers.state();
        let State { queues, joined, wanted, .. } = &mut *state;
        let Some(queue) = queues.get_mut(&self.id) else { return Poll::Ready(None) };
        if queue.part == Part::GivenUp {
            (queue.part, *joined) = (Part::Nothing, true);
            self.followers.changed.notify_one();
        }
        let was_full = !queue.has_room(self.followers.most, *wanted);
        let Some(event) = queue.next() else {
            queue.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        if was_full || matches!(event, Event::Init) {
            self.followers.changed.notify_one();
        }
        Poll::Ready(Some(event))
    }
}

impl<T> Drop for Follower<T> {
    fn drop(&mut self) {
        let queue = self.followers.state().queues.remove(&self.id);
        drop(queue);
        self.followers.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
