//! What all connections use: the pods, the link, the cache. All on one thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sampan_api_control::{FromHelper, Settings, ToHelper};
use sampan_helper::Teller;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout_at};

use crate::cache::{Cache, Room, WRITES};
use crate::counters::Counters;
use crate::guests::Guests;
use crate::link::Link;
use crate::pods::{Pods, Who};
use crate::rate::{self, PATIENCE, Rate};
use crate::relay::Relay;

/// How long a request waits for a link that was lost a moment ago.
const MOMENT: Duration = Duration::from_secs(2);
/// Between two texts for the daemon.
const COUNTERS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Shared {
    start: Instant,
    authority: String,
    pub(crate) pods: RefCell<Pods>,
    pub(crate) cache: RefCell<Cache>,
    pub(crate) copies: Room,
    pub(crate) guests: RefCell<Guests>,
    rate: Rate,
    link: RefCell<Link>,
    /// The link is up, or down.
    changed: Notify,
    daemon: RefCell<Option<Teller>>,
    refused: RefCell<Vec<String>>,
    counters: RefCell<Counters>,
    counted: RefCell<Counters>,
    is_counting: Cell<bool>,
    is_writing: Cell<bool>,
}

/// The time in milliseconds of the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

impl Shared {
    pub(crate) fn new(settings: &Settings, authority: String) -> Self {
        let start = Instant::now();
        let cache = Cache::open(&settings.folder, settings.cache_bytes, settings.secrets_in_memory);
        Self {
            start,
            authority,
            pods: RefCell::default(),
            cache: RefCell::new(cache),
            copies: Room::default(),
            guests: RefCell::default(),
            rate: Rate::of_node(),
            link: RefCell::new(Link { is_up: false, since_ms: now_ms(), relay: None, down_at: start }),
            changed: Notify::new(),
            daemon: RefCell::default(),
            refused: RefCell::default(),
            counters: RefCell::default(),
            counted: RefCell::default(),
            is_counting: Cell::new(false),
            is_writing: Cell::new(false),
        }
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits for the turn of a request of this pod. Returns `false` if pods ask too often.
    pub(crate) async fn turn(&self, who: &Who) -> bool {
        let wait = rate::turn(&who.rate, &self.rate, self.now());
        if wait != Some(Duration::ZERO) {
            sleep(wait.unwrap_or(PATIENCE)).await;
        }
        wait.is_some()
    }

    // The daemon.

    /// A daemon is there, and begins to name all pods.
    pub(crate) fn daemon_came(self: &Rc<Self>, tell: Teller) {
        self.daemon.replace(Some(tell));
        self.pods.borrow_mut().begin();
        self.tell(&FromHelper::Hello { version: sampan_api_control::VERSION });
        self.tell_ready();
        self.counted.take();
        self.count(|_| {});
    }

    /// The daemon has gone: the link counts as down, and pods stay.
    pub(crate) fn daemon_went(&self) {
        self.daemon.take();
        self.change(|link| {
            if let Some(relay) = link.relay.take() {
                relay.close("the daemon has gone");
            }
            if std::mem::take(&mut link.is_up) {
                link.since_ms = now_ms();
            }
        });
    }

    /// The daemon's connection for streams.
    pub(crate) fn connected(&self, relay: &Rc<Relay>) {
        self.change(|link| {
            if let Some(older) = link.relay.replace(Rc::clone(relay)) {
                older.close("the daemon has connected again");
            }
        });
    }

    /// Sends a line. A daemon that does not read is disconnected.
    pub(crate) fn tell(&self, line: &FromHelper) {
        let is_told = self.daemon.borrow().as_ref().is_none_or(|daemon| daemon.tell(line));
        if !is_told {
            self.daemon.take();
        }
    }

    fn tell_ready(&self) {
        let (certificate, refused) = (self.authority.clone(), self.refused.borrow().clone());
        self.tell(&FromHelper::Ready { certificate, refused });
    }

    /// Whether the helper listens at an address; if not, why.
    pub(crate) fn listens(&self, address: &str, refused: Option<String>) {
        let mut all = self.refused.borrow().clone();
        all.retain(|line| !line.starts_with(&format!("{address}: ")));
        all.extend(refused.map(|why| format!("{address}: {why}")));
        if *self.refused.borrow() != all {
            self.refused.replace(all);
            self.tell_ready();
        }
    }

    /// A line of the daemon.
    pub(crate) fn told(self: &Rc<Self>, line: ToHelper) {
        match line {
            ToHelper::Pod(pod) => self.pods.borrow_mut().tell(self.now(), pod),
            ToHelper::PodGone { uid } => self.pod_gone(&uid),
            ToHelper::Told {} => {
                let gone = self.pods.borrow_mut().told();
                for uid in gone {
                    self.guests.borrow().send_away(&uid);
                }
                let pods = self.pods.borrow();
                let mut cache = self.cache.borrow_mut();
                for account in pods.accounts() {
                    cache.touch(account);
                }
                cache.forget_accounts(pods.accounts());
            }
            ToHelper::Link { up, since_ms } => self.change(|link| (link.is_up, link.since_ms) = (up, since_ms)),
            ToHelper::Daemon { .. } | ToHelper::Streams { .. } | ToHelper::Ping {} | ToHelper::End {} => {}
        }
        self.count(|_| {});
    }

    fn pod_gone(&self, uid: &str) {
        let account = self.pods.borrow().account(uid).map(str::to_owned);
        self.pods.borrow_mut().gone(uid);
        self.guests.borrow().send_away(uid);
        let mut cache = self.cache.borrow_mut();
        if let Some(account) = account.filter(|account| !self.pods.borrow().has_account(account)) {
            cache.touch(&account);
        }
        cache.forget_accounts(self.pods.borrow().accounts());
    }

    // The link.

    fn change(&self, how: impl FnOnce(&mut Link)) {
        let mut link = self.link.borrow_mut();
        let before = link.usable();
        how(&mut link);
        let after = link.usable();
        if before && !after {
            link.down_at = Instant::now();
        }
        drop(link);
        if before != after {
            self.changed.notify_waiters();
            if !after {
                self.flush();
            }
        }
    }

    /// Writes what the cache has not written yet.
    pub(crate) fn flush(&self) {
        self.cache.borrow_mut().flush(self.now());
    }

    /// Writes later what may not be written yet: a power cut would take it. No timer runs where nothing waits.
    pub(crate) fn write_later(self: &Rc<Self>) {
        if !self.cache.borrow().has_unwritten() || self.is_writing.replace(true) {
            return;
        }
        let shared = Rc::clone(self);
        spawn_local(async move {
            while shared.cache.borrow().has_unwritten() {
                sleep(WRITES).await;
                shared.flush();
            }
            shared.is_writing.set(false);
        });
    }

    /// The way to the bridge. Waits a moment for a link that was lost just now.
    pub(crate) async fn relay(&self) -> Option<Rc<Relay>> {
        loop {
            let changed = self.changed.notified();
            let until = {
                let link = self.link.borrow();
                if link.usable() {
                    return link.relay.clone();
                }
                link.down_at + MOMENT
            };
            if timeout_at(until, changed).await.is_err() {
                return None;
            }
        }
    }

    /// Waits until the link is up.
    pub(crate) async fn link_is_up(&self) {
        loop {
            let changed = self.changed.notified();
            if self.link.borrow().usable() {
                return;
            }
            changed.await;
        }
    }

    /// Since when the link is down, in milliseconds of the Unix epoch; `None` while it is up.
    pub(crate) fn down_since(&self) -> Option<u64> {
        let link = self.link.borrow();
        (!link.usable()).then_some(link.since_ms)
    }

    // Counters.

    /// Counts, and tells the daemon soon.
    pub(crate) fn count(self: &Rc<Self>, how: impl FnOnce(&mut Counters)) {
        how(&mut self.counters.borrow_mut());
        if self.is_counting.replace(true) {
            return;
        }
        let shared = Rc::clone(self);
        spawn_local(async move {
            sleep(COUNTERS).await;
            shared.is_counting.set(false);
            let mut counters = shared.counters.borrow().clone();
            counters.pods = shared.pods.borrow().len();
            counters.cache_bytes = shared.cache.borrow().size();
            if *shared.counted.borrow() != counters {
                shared.tell(&FromHelper::Counters { counters: counters.shown() });
                shared.counted.replace(counters);
            }
        });
    }
}
