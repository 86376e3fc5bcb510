//! Connections of the daemon: the newest counts. Starts everything with the first daemon's settings.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use sampan_plugins_control::Settings;
use sampan_sys::vec_map::VecMap;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::shared::Shared;
use crate::{csi, device_plugins, pod_resources, registry};

/// Connections at once, also those that have not said who they are.
const CALLERS: usize = 8;

#[derive(Debug)]
pub(crate) struct Callers {
    is_new_boot: bool,
    /// File with registrations of plugins.
    registrations: PathBuf,
    tasks: RefCell<VecMap<u64, AbortHandle>>,
    newest: Cell<u64>,
    daemon: Cell<Option<u64>>,
    works: RefCell<Option<Works>>,
    end: Notify,
}

/// The node that this helper works for.
#[derive(Debug)]
struct Works {
    node: String,
    shared: Rc<Shared>,
}

impl Callers {
    pub(crate) fn new(is_new_boot: bool, registrations: PathBuf) -> Self {
        Self {
            is_new_boot,
            registrations,
            tasks: RefCell::default(),
            newest: Cell::new(0),
            daemon: Cell::new(None),
            works: RefCell::default(),
            end: Notify::new(),
        }
    }

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
    pub(super) fn daemon(&self, id: u64, node: String, settings: Settings) -> Option<Rc<Shared>> {
        if let Some(older) = self.daemon.get() {
            self.abort(older);
            self.went(older);
        }
        let mut works = self.works.borrow_mut();
        let works = works.get_or_insert_with(|| {
            let shared = Rc::new(Shared::new(settings.clone(), self.registrations.clone()));
            if settings.device_plugins {
                device_plugins::start(&shared, self.is_new_boot);
            }
            if settings.csi {
                csi::start(&shared, &node);
            }
            if !settings.csi_controllers.is_empty() {
                csi::serve_controllers(&shared);
            }
            if settings.device_plugins || settings.csi {
                registry::start(&shared, self.is_new_boot);
            }
            if settings.pod_resources {
                pod_resources::start(&shared);
            }
            Works { node: node.clone(), shared }
        });
        if works.node != node || works.shared.settings != settings {
            return None;
        }
        self.daemon.set(Some(id));
        Some(Rc::clone(&works.shared))
    }

    /// A connection has ended.
    pub(super) fn went(&self, id: u64) {
        self.tasks.borrow_mut().remove(&id);
        if self.daemon.get() != Some(id) {
            return;
        }
        self.daemon.set(None);
        if let Some(works) = &*self.works.borrow() {
            works.shared.daemon_went();
        }
    }

    fn abort(&self, id: u64) {
        if let Some(task) = self.tasks.borrow_mut().remove(&id) {
            task.abort();
        }
    }

    /// Ends the helper.
    pub(super) fn end(&self) {
        self.end.notify_one();
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
        if let Some(works) = &*self.works.borrow() {
            works.shared.close();
        }
    }
}
