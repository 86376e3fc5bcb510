//! The daemon's handle on the monitor: connects to a living one or spawns a new one, and again when it dies.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use smol::LocalExecutor;
use smol::channel::Sender;
use thiserror::Error;

use super::exit::ExitRecord;
use super::protocol::{ContainerState, StartContainer};
use crate::paths::Paths;

/// How to start a monitor.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The edge-runtime binary; `/proc/self/exe` of the daemon.
    pub program: PathBuf,
    /// OCI runtime processes at work at the same time; 2 to 4, the number of cores.
    pub workers: usize,
    /// Environment of the OCI runtime.
    pub runtime_env: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self { program: PathBuf::from("/proc/self/exe"), workers: cores.clamp(2, 4), runtime_env: BTreeMap::new() }
    }
}

/// News from the monitor.
#[derive(Clone, Debug, PartialEq)]
pub enum MonitorEvent {
    Started {
        id: String,
        pid: i32,
        started_at: String,
    },
    StartFailed {
        id: String,
        message: String,
    },
    Exited(ExitRecord),
    /// First of all events, and again after each death of the monitor: everything that is known, complete. A start
    /// asked for before and not listed was never begun. Exits not yet forgotten are listed here, not told again.
    Reconnected {
        containers: Vec<ContainerState>,
    },
}

#[derive(Debug, Error)]
pub enum ClientError {
    /// The answer will never come; [`MonitorEvent::Reconnected`] tells the truth soon.
    #[error("the monitor has gone away")]
    Gone,
    #[error("the monitor refused: {0}")]
    Refused(String),
}

/// Cheap to clone; all clones share one connection. Dropping the last one ends the connection, not the monitor.
#[derive(Clone)]
pub struct MonitorClient {
    inner: Rc<Inner>,
}

struct Inner {}

impl MonitorClient {
    /// Connects in the background. A monitor is spawned when something was left running by a former one, else with
    /// the first start.
    pub fn connect_or_spawn(
        executor: &Rc<LocalExecutor<'static>>,
        paths: Paths,
        settings: Settings,
        events: Sender<MonitorEvent>,
    ) -> Self {
        let _ = (executor, paths, settings, events);
        Self { inner: Rc::new(Inner {}) }
    }

    /// Queues a start. Ok means accepted; the outcome is an event.
    pub async fn start(&self, container: StartContainer) -> Result<(), ClientError> {
        let _ = (container, &self.inner);
        Err(ClientError::Gone)
    }

    /// Sends a signal to the container's first process.
    pub async fn kill(&self, id: &str, signal: i32) -> Result<(), ClientError> {
        let _ = (id, signal);
        Err(ClientError::Gone)
    }

    /// Forgets an ended container and cleans what the OCI runtime keeps of it. The bundle folder stays.
    pub async fn delete(&self, id: &str) -> Result<(), ClientError> {
        let _ = id;
        Err(ClientError::Gone)
    }

    /// The exit is committed to the store: its record may go.
    pub async fn forget(&self, id: &str) -> Result<(), ClientError> {
        let _ = id;
        Err(ClientError::Gone)
    }

    pub async fn list(&self) -> Result<Vec<ContainerState>, ClientError> {
        Err(ClientError::Gone)
    }

    /// Ends a monitor that has no container left; returns whether it did.
    pub async fn shutdown_if_idle(&self) -> Result<bool, ClientError> {
        Err(ClientError::Gone)
    }
}
