//! Connections of the daemon: the newest of each sort counts, and the end of one ends the other. Starts the server for
//! pods with the first daemon's settings.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use sampan_api_control::Settings;
use sampan_sys::vec_map::VecMap;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::http;
use crate::shared::Shared;
use crate::tls;

/// Connections at once, also those that have not said who they are.
const CALLERS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Callers {
    tasks: RefCell<VecMap<u64, AbortHandle>>,
    newest: Cell<u64>,
    daemon: Cell<Option<u64>>,
    streams: Cell<Option<u64>>,
    works: RefCell<Option<Works>>,
    end: Notify,
    failed: RefCell<Option<io::Error>>,
}

/// The node and the settings that this helper works with.
#[derive(Debug)]
struct Works {
    node: String,
    settings: Settings,
    shared: Rc<Shared>,
}

impl Callers {
    /// Starts a connection's task under a number of its own, if there is room.
    pub(super) fn came(&self, start: impl FnOnce(u64) -> AbortHandle) {
        if self.tasks.borrow().len() >= CALLERS {
            return log::warn!("too many callers: one is sent away");
        }
        let id = self.newest.get() + 1;
        self.newest.set(id);
        // It does not run before this is done: all is on one thread.
        self.tasks.borrow_mut().insert(id, start(id));
    }

    /// The caller is the daemon. `None`: this helper has other settings, and must end.
    ///
    /// # Errors
    /// There is no certificate: the helper ends with that.
    pub(super) fn daemon(&self, id: u64, node: String, settings: Settings) -> io::Result<Option<Rc<Shared>>> {
        if let Some(older) = self.daemon.get() {
            self.cut(older);
        }
        let known = self
            .works
            .borrow()
            .as_ref()
            .map(|works| (works.node == node && works.settings == settings).then(|| Rc::clone(&works.shared)));
        let shared = match known {
            Some(Some(shared)) => shared,
            Some(None) => return Ok(None),
            None => {
                let identity = tls::identity(&settings)?;
                let shared = Rc::new(Shared::new(&settings, identity.authority));
                http::start(&shared, &settings.listen, &identity.server);
                self.works.replace(Some(Works { node, settings, shared: Rc::clone(&shared) }));
                shared
            }
        };
        self.daemon.set(Some(id));
        Ok(Some(shared))
    }

    /// The caller is the daemon's connection for streams. `None`: there is none for control.
    pub(super) fn streams(&self, id: u64) -> Option<Rc<Shared>> {
        self.daemon.get()?;
        if let Some(older) = self.streams.take() {
            self.abort(older);
        }
        self.streams.set(Some(id));
        self.works.borrow().as_ref().map(|works| Rc::clone(&works.shared))
    }

    /// A connection has ended.
    pub(super) fn went(&self, id: u64) {
        self.tasks.borrow_mut().remove(&id);
        let mine = |which: &Cell<Option<u64>>| which.get() == Some(id);
        if !mine(&self.daemon) && !mine(&self.streams) {
            return;
        }
        for other in [self.daemon.take(), self.streams.take()].into_iter().flatten() {
            self.abort(other);
        }
        if let Some(works) = &*self.works.borrow() {
            works.shared.daemon_went();
        }
    }

    fn cut(&self, id: u64) {
        self.abort(id);
        self.went(id);
    }

    fn abort(&self, id: u64) {
        if let Some(task) = self.tasks.borrow_mut().remove(&id) {
            task.abort();
        }
    }

    /// Ends the helper.
    pub(super) fn end(&self, why: Option<io::Error>) {
        self.failed.replace(why);
        self.end.notify_one();
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The helper cannot work.
    pub(crate) async fn ended(&self) -> io::Result<()> {
        self.end.notified().await;
        if let Some(works) = &*self.works.borrow() {
            works.shared.flush();
        }
        self.failed.take().map_or(Ok(()), Err)
    }
}
