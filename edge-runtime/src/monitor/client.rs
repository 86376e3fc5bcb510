//! The daemon's handle on the monitor: connects to a living one or spawns a new one, and again when it dies.
//!
//! The work is done by one background task ([`super::link`]); this file is what the rest of the daemon sees.

use std::path::PathBuf;
use std::time::Duration;

use crate::sys::tasks::Tasks;
use smol::channel::Sender;
use thiserror::Error;

use super::link::{Link, Outgoing};
use crate::paths::Paths;
use crate::sys::terminal::Size;
use sampan_monitor::exit::ExitRecord;
use sampan_monitor::protocol::{Answer, ContainerState, Request, StartContainer};

/// Calls on their way at once; more wait in their `await`.
const MAX_CALLS: usize = 256;

/// How to start a monitor.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The edge-runtime binary; `/proc/self/exe` of the daemon.
    pub program: PathBuf,
    /// OCI runtime processes at work at the same time.
    pub workers: usize,
    /// Added to the environment of the OCI runtime.
    pub runtime_env: Vec<(String, String)>,
    /// How long the OCI runtime may take for one thing.
    pub runtime_timeout: Duration,
    /// A monitor that leaves a call unanswered for longer hangs; asked for it twice in that time.
    pub patience: Duration,
}

/// A monitor waits for nothing but its disk.
const PATIENCE: Duration = Duration::from_mins(1);

/// The kubelet's `runtimeRequestTimeout`.
pub const RUNTIME_TIMEOUT: Duration = Duration::from_mins(2);

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        // A start waits for the kernel (cgroups, mounts) for half of its time.
        Self {
            program: PathBuf::from("/proc/self/exe"),
            workers: (2 * cores).clamp(2, 4),
            runtime_env: runtime_env(),
            runtime_timeout: RUNTIME_TIMEOUT,
            patience: PATIENCE,
        }
    }
}

/// runc is a Go program that lives for 20 ms: more threads for its collector only cost.
fn runtime_env() -> Vec<(String, String)> {
    vec![("GOMAXPROCS".to_owned(), "1".to_owned())]
}

/// News from the monitor.
#[derive(Clone, Debug, PartialEq)]
pub enum MonitorEvent {
    /// Times are RFC 3339 in UTC with nanoseconds.
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
    /// What containers write cannot be logged, and why; or it can again.
    LogTrouble(Option<String>),
    /// The monitor does not answer, and what is known of its process; or it does again.
    Silent(Option<String>),
    /// First event, and again after each death of the monitor: the complete list of containers. A start that failed
    /// with [`ClientError::Gone`] and is not listed was never executed. Exits not yet forgotten are in this list, and
    /// are not reported again.
    Reconnected {
        containers: Vec<ContainerState>,
    },
}

#[derive(Debug, Error)]
pub enum ClientError {
    /// The monitor has died; [`MonitorEvent::Reconnected`] will tell whether it did what was asked.
    #[error("the monitor has gone away")]
    Gone,
    #[error("the monitor refused: {0}")]
    Refused(String),
}

/// Cheap to clone; all clones share one connection. Dropping the last one ends the connection, not the monitor.
#[derive(Clone)]
pub struct MonitorClient {
    calls: Sender<Outgoing>,
}

impl MonitorClient {
    /// Connects in the background. A monitor is spawned when a former one left something running, else with the
    /// first start. Events are never waited for by the connection: awaiting a call while `events` is full is fine.
    pub fn connect_or_spawn(executor: &Tasks, paths: Paths, settings: Settings, events: Sender<MonitorEvent>) -> Self {
        let (calls, receiver) = smol::channel::bounded(MAX_CALLS);
        let (news, backlog) = smol::channel::unbounded();
        executor.spawn(Link::new(paths, settings, receiver, news).run()).detach();
        let forward = async move {
            while let Ok(event) = backlog.recv().await {
                if events.send(event).await.is_err() {
                    break;
                }
            }
        };
        executor.spawn(forward).detach();
        Self { calls }
    }

    /// A client that no monitor answers.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self { calls: smol::channel::bounded(1).0 }
    }

    /// Queues a start. Ok means accepted; the outcome is an event.
    ///
    /// # Errors
    /// Refused when the id is known or has an exit record: an attempt never runs twice.
    pub async fn start(&self, container: StartContainer) -> Result<(), ClientError> {
        self.call(Request::Start(Box::new(container))).await.map(|_| ())
    }

    /// Sends a signal to the container's first process. If the container has ended, its exit event is repeated.
    ///
    /// # Errors
    /// Refused for an unknown id.
    pub async fn kill(&self, id: &str, signal: i32) -> Result<(), ClientError> {
        self.call(Request::Kill { id: id.to_owned(), signal }).await.map(|_| ())
    }

    /// Forgets an ended container and cleans what the OCI runtime keeps of it. The bundle folder and the exit record
    /// stay. Unknown ids succeed.
    ///
    /// # Errors
    /// Refused while it runs.
    pub async fn delete(&self, id: &str) -> Result<(), ClientError> {
        self.call(Request::Delete { id: id.to_owned() }).await.map(|_| ())
    }

    /// The exit is committed to the store: its record may go.
    ///
    /// # Errors
    /// The record cannot be removed.
    pub async fn forget(&self, id: &str) -> Result<(), ClientError> {
        self.call(Request::Forget { id: id.to_owned() }).await.map(|_| ())
    }

    /// All containers, and exits not yet forgotten.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn list(&self) -> Result<Vec<ContainerState>, ClientError> {
        Ok(self.call(Request::List).await?.containers.unwrap_or_default())
    }

    /// Bytes for the terminal of a container that has one; how many were taken, which may be none for now.
    ///
    /// # Errors
    /// The container has no terminal, or does not run any more.
    pub async fn input(&self, id: &str, data: &[u8]) -> Result<usize, ClientError> {
        let request = Request::Input { id: id.to_owned(), data: data.to_vec() };
        Ok(self.call(request).await?.taken.unwrap_or(data.len()))
    }

    /// A new size of the container's terminal.
    ///
    /// # Errors
    /// Same as [`Self::input`].
    pub async fn resize(&self, id: &str, size: Size) -> Result<(), ClientError> {
        self.call(Request::Resize { id: id.to_owned(), size }).await.map(|_| ())
    }

    /// Ends the standard input of a container that was started so that it can end. Waits for nothing: also for use
    /// where something is dropped.
    pub fn close_stdin(&self, id: &str) {
        let (reply, _) = smol::channel::bounded(1);
        // Full only if the monitor is stuck; the input then ends with the container.
        let _ = self.calls.try_send(Outgoing { request: Request::CloseStdin { id: id.to_owned() }, reply });
    }

    /// Ends a monitor that has no container left; returns whether none lives now. The next start spawns a new one.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn shutdown_if_idle(&self) -> Result<bool, ClientError> {
        match self.call(Request::Shutdown).await {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    async fn call(&self, request: Request) -> Result<Answer, ClientError> {
        let (reply, answer) = smol::channel::bounded(1);
        self.calls.send(Outgoing { request, reply }).await.map_err(|_| ClientError::Gone)?;
        let answer: Answer = answer.recv().await.map_err(|_| ClientError::Gone)?;
        match answer.error {
            Some(error) => Err(ClientError::Refused(error)),
            None => Ok(answer),
        }
    }
}
