//! What all tasks use: the plugins, the daemon, what is refused. All on one thread.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use sampan_helper::Teller;
use sampan_plugins_control::{Asked, FromHelper, Resources, Settings, VERSION};
use sampan_sys::files::unless_missing;
use sampan_sys::vec_map::VecMap;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;

use crate::connected::Connected;
use crate::counters::Counters;
use crate::csi::state::Csi;
use crate::kept;
use crate::plugins::{News, Plugins};
use crate::refused::Refused;

/// Between two texts for the daemon.
const COUNTERS: Duration = Duration::from_secs(1);
/// Between two looks for changed devices: a plugin may list them hundreds of times a second.
const NEWS: Duration = Duration::from_millis(200);
/// Between two lists of what is refused: a plugin may fail in turns.
const REFUSED: Duration = Duration::from_secs(1);
/// Calls of podresources that wait for the daemon.
const MAX_ASKED: usize = 32;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// File with registrations, for another helper.
    pub(crate) registrations: PathBuf,
    pub(crate) plugins: RefCell<Plugins<Connected, AbortHandle>>,
    pub(crate) csi: Csi,
    daemon: RefCell<Option<Teller>>,
    connection: Cell<u64>,
    /// Orders of the daemon that are under way.
    pub(crate) orders: Cell<usize>,
    asked: RefCell<VecMap<u64, oneshot::Sender<Resources>>>,
    newest_asked: Cell<u64>,
    is_telling: Cell<bool>,
    refused: RefCell<Refused>,
    is_telling_refused: Cell<bool>,
    /// Sockets that are ours now.
    serves: RefCell<Vec<PathBuf>>,
    counters: RefCell<Counters>,
    counted: RefCell<Counters>,
    is_counting: Cell<bool>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, registrations: PathBuf) -> Self {
        Self {
            settings,
            registrations,
            plugins: RefCell::default(),
            csi: Csi::default(),
            daemon: RefCell::default(),
            connection: Cell::new(0),
            orders: Cell::new(0),
            asked: RefCell::default(),
            newest_asked: Cell::new(0),
            is_telling: Cell::new(false),
            refused: RefCell::default(),
            is_telling_refused: Cell::new(false),
            serves: RefCell::default(),
            counters: RefCell::default(),
            counted: RefCell::default(),
            is_counting: Cell::new(false),
        }
    }

    // The daemon.

    /// A daemon is there: it is told everything.
    pub(crate) fn daemon_came(self: &Rc<Self>, tell: Teller) {
        self.daemon.replace(Some(tell));
        self.connection.set(self.connection.get() + 1);
        // Their answers would come from the connection that has ended.
        self.asked.borrow_mut().clear();
        self.tell(&FromHelper::Hello { version: VERSION });
        self.plugins.borrow_mut().begin();
        self.tell_news_now();
        if self.settings.csi {
            self.tell(&FromHelper::Drivers { drivers: self.csi.shown() });
        }
        self.tell(&FromHelper::Told {});
        self.refused.borrow_mut().begin();
        self.tell_refused_now();
        self.counted.take();
        self.count(|_| {});
    }

    pub(crate) fn daemon_went(&self) {
        self.daemon.take();
        self.connection.set(self.connection.get() + 1);
        self.asked.borrow_mut().clear();
    }

    /// Sends a line. A daemon that does not read is disconnected.
    pub(crate) fn tell(&self, line: &FromHelper) {
        let is_told = self.daemon.borrow().as_ref().is_none_or(|daemon| daemon.tell(line));
        if !is_told {
            self.daemon.take();
        }
    }

    /// The daemon's answer to a call of podresources.
    pub(crate) fn answered(&self, id: u64, resources: Resources) {
        if let Some(asked) = self.asked.borrow_mut().remove(&id) {
            // The client may have gone.
            let _ = asked.send(resources);
        }
    }

    /// Number of the daemon's connection: orders of an older one have no answer.
    pub(crate) fn connection(&self) -> u64 {
        self.connection.get()
    }

    /// Asks the daemon what pods have. `None`: there is no daemon, or it has gone before its answer.
    pub(crate) async fn ask(&self, what: Asked) -> Option<Resources> {
        self.daemon.borrow().as_ref()?;
        let (send, answer) = oneshot::channel();
        {
            let mut asked = self.asked.borrow_mut();
            asked.retain(|_, waiting| !waiting.is_closed());
            if asked.len() >= MAX_ASKED {
                return None;
            }
            self.newest_asked.set(self.newest_asked.get() + 1);
            asked.insert(self.newest_asked.get(), send);
        }
        self.tell(&FromHelper::AskResources { id: self.newest_asked.get(), what });
        answer.await.ok()
    }

    // Plugins.

    /// Tells the daemon soon what has changed.
    pub(crate) fn tell_news(self: &Rc<Self>) {
        if self.is_telling.replace(true) {
            return;
        }
        let shared = Rc::clone(self);
        spawn_local(async move {
            // At once, and then for as long as there is something new.
            while shared.tell_news_now() {
                sleep(NEWS).await;
            }
            shared.is_telling.set(false);
        });
    }

    /// Returns whether there was something, or is something that waits.
    fn tell_news_now(self: &Rc<Self>) -> bool {
        // Plugins that list their devices all the time do not cost a slow daemon its connection: what waits here is only the
        // last state.
        if self.daemon.borrow().as_ref().is_some_and(|daemon| !daemon.has_room()) {
            return true;
        }
        let news = self.plugins.borrow_mut().news(Instant::now());
        let is_there = !news.is_empty();
        for (resource, what) in news {
            self.tell(&match what {
                News::Devices(all) => FromHelper::Devices { resource, all },
                News::Gone => FromHelper::Gone { resource },
            });
        }
        if is_there {
            self.count(|_| {});
        }
        is_there || self.plugins.borrow().has_news()
    }

    /// Removes a registration that no other has replaced, and ends its task.
    pub(crate) fn unregister(self: &Rc<Self>, resource: &str, number: u64) {
        let Some(task) = self.plugins.borrow_mut().remove(resource, number) else { return };
        self.keep();
        self.accepts(resource);
        self.tell_news();
        self.count(|_| {});
        task.abort();
    }

    /// Keeps the registrations for another helper.
    pub(crate) fn keep(&self) {
        kept::write(&self.registrations, self.plugins.borrow().kept());
    }

    // Sockets.

    /// The socket at this path is ours, or is no more.
    pub(crate) fn serves(&self, path: &Path, is_ours: bool) {
        let mut serves = self.serves.borrow_mut();
        serves.retain(|known| known != path);
        if is_ours {
            serves.push(path.to_owned());
        }
    }

    /// Removes our sockets: the helper ends.
    pub(crate) fn close(&self) {
        for path in self.serves.take() {
            if let Err(error) = unless_missing(std::fs::remove_file(&path)) {
                log::warn!("{}: {error}", path.display());
            }
        }
    }

    // What is refused.

    /// Something cannot be done, and is tried again.
    pub(crate) fn refuses(self: &Rc<Self>, what: &str, why: impl ToString) {
        if let Some(why) = self.refused.borrow_mut().add(what, &why.to_string()) {
            log::warn!("{what}: {why}");
            self.tell_refused();
        }
    }

    /// It can be done again.
    pub(crate) fn accepts(self: &Rc<Self>, what: &str) {
        let was_refused = self.refused.borrow_mut().remove(what);
        if was_refused {
            self.tell_refused();
        }
    }

    /// Tells the daemon soon what is refused now.
    fn tell_refused(self: &Rc<Self>) {
        if self.is_telling_refused.replace(true) {
            return;
        }
        let shared = Rc::clone(self);
        spawn_local(async move {
            while shared.tell_refused_now() {
                sleep(REFUSED).await;
            }
            shared.is_telling_refused.set(false);
        });
    }

    /// Returns whether it has changed.
    fn tell_refused_now(&self) -> bool {
        let Some(refused) = self.refused.borrow_mut().news() else { return false };
        self.tell(&FromHelper::Ready { refused });
        true
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
            (counters.resources, counters.devices) = shared.plugins.borrow().count();
            if *shared.counted.borrow() != counters {
                shared.tell(&FromHelper::Counters { counters: counters.shown() });
                shared.counted.replace(counters);
            }
        });
    }
}
