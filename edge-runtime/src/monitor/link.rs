//! The background task behind [`super::client::MonitorClient`]: the connection's life, calls out, answers and news
//! in. Decides when a monitor is needed; never what to do about a container.

mod converse;
mod news;
mod silence;
mod wire;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use smol::Async;
use smol::channel::{Receiver, Sender};
use smol::future::or;

use self::silence::{Silence, silent_because};
use self::wire::until_closed;
use super::client::{MonitorEvent, Settings};
use crate::counters;
use crate::paths::Paths;
use crate::sys::vec_map::VecMap;
use crate::sys::{descriptors, helper};
use sampan_monitor::protocol::{Answer, ContainerState, Phase, Request};
use sampan_monitor::{exit, files};

pub(super) use self::wire::{connect, receive, send};

/// Pauses between connections that are of no use.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One call of the handle.
pub(crate) struct Outgoing {
    pub(crate) request: Request,
    pub(crate) reply: Sender<Answer>,
}

pub(crate) struct Link {
    paths: Paths,
    settings: Settings,
    calls: Receiver<Outgoing>,
    news: Sender<MonitorEvent>,
    /// Pidfds of running containers: with these the daemon can tell how a container ended while no monitor lived
    /// (Linux 6.15 and later).
    held: RefCell<VecMap<String, OwnedFd>>,
    has_log_trouble: Cell<bool>,
    /// The monitor has answered on this connection.
    listened: Cell<bool>,
    silence: Silence,
}

/// Why a conversation is over, other than by an error.
enum End {
    /// All handles are dropped.
    Dropped,
    /// The monitor had nothing left to do and was asked to go.
    Left,
}

impl Link {
    pub(crate) fn new(paths: Paths, settings: Settings, calls: Receiver<Outgoing>, news: Sender<MonitorEvent>) -> Self {
        Self {
            paths,
            settings,
            calls,
            news,
            held: RefCell::default(),
            has_log_trouble: Cell::default(),
            listened: Cell::default(),
            silence: Silence::default(),
        }
    }

    /// Runs until the last handle is dropped.
    pub(crate) async fn run(self) {
        // Without a driver of our own, the first child process would start a thread to wait for children.
        let driver = async {
            smol::process::driver().await;
        };
        or(self.live(), driver).await;
    }

    async fn live(&self) {
        let mut told: Option<Vec<ContainerState>> = None;
        let mut first = None;
        let mut pause = Duration::ZERO;
        loop {
            let existing = connect(&self.paths);
            if existing.is_none() && first.is_none() && !files::any_left(&self.paths.run()) {
                let containers = self.records();
                if told.as_ref() != Some(&containers) {
                    self.tell(MonitorEvent::Reconnected { containers: containers.clone() });
                    told = Some(containers);
                }
                match self.wait_for_start().await {
                    Some(call) => first = Some(call),
                    None => return,
                }
            }
            // Calls fail until containers of a former monitor are known again, so that they cannot act on an incomplete
            // list.
            let stream = match existing {
                Some(stream) => stream,
                None if first.is_some() => self.spawn().await,
                None => match or(async { Some(self.spawn().await) }, self.refuse_calls()).await {
                    Some(stream) => stream,
                    None => return,
                },
            };
            counters::MONITOR_PID.set(helper::pid_of(&stream).unwrap_or_default());
            self.silence.heard(false);
            let outcome = or(self.converse(&stream, first.take(), &mut told), self.watch_silence(&stream)).await;
            match outcome {
                Ok(End::Dropped) => return,
                Ok(End::Left) => {
                    until_closed(&stream).await;
                    // It knew no container: nothing has changed for the daemon, unless the next monitor finds some.
                    told = (!files::any_left(&self.paths.run())).then(|| self.records());
                    self.listened.take();
                    continue;
                }
                Err(e) => {
                    counters::LOST_MONITOR.one();
                    log::warn!("monitor: connection lost: {e}");
                }
            }
            told = None;
            self.log_trouble(None);
            if self.listened.take() {
                pause = Duration::ZERO;
            } else {
                // A monitor that accepts the connection and closes it (it has too many) is retried with a pause.
                pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                smol::Timer::after(pause).await;
            }
        }
    }

    /// Serves what needs no monitor; returns the first call that does. `None` when all handles are dropped.
    async fn wait_for_start(&self) -> Option<Outgoing> {
        loop {
            let call = self.calls.recv().await.ok()?;
            let mut answer = Answer::default();
            match &call.request {
                Request::Start(_) => return Some(call),
                Request::Kill { id, .. } => answer.error = Some(format!("no container {id}")),
                Request::Forget { id } => {
                    answer.error = exit::remove(&self.paths.exits(), id).err().map(|e| e.to_string());
                }
                Request::List => answer.containers = Some(self.records()),
                Request::Attach { id } | Request::Input { id, .. } | Request::Resize { id, .. } => {
                    answer.error = Some(format!("no container {id}"));
                }
                Request::Hello { .. } | Request::Delete { .. } | Request::CloseStdin { .. } | Request::Shutdown => {}
            }
            let _ = call.reply.try_send(answer);
        }
    }

    async fn refuse_calls<T>(&self) -> Option<T> {
        while self.calls.recv().await.is_ok() {}
        None
    }

    /// Exit records of containers that no monitor knows any more.
    fn records(&self) -> Vec<ContainerState> {
        let records = exit::read_all(&self.paths.exits());
        records.into_iter().map(|r| ContainerState { id: r.id.clone(), phase: Phase::Exited(r) }).collect()
    }

    /// Starts a monitor and connects to it; tries until it works.
    async fn spawn(&self) -> Async<UnixStream> {
        let mut delay = Duration::from_millis(50);
        loop {
            // A running monitor may have been missed, because it listens only after it has adopted its containers. A
            // second one does not start beside it.
            if let Some(stream) = connect(&self.paths) {
                return stream;
            }
            let mut command = descriptors::command(&self.settings.program);
            command.arg("monitor").arg("--root").arg(self.paths.root());
            command.arg("--workers").arg(self.settings.workers.to_string());
            command.arg("--runtime-timeout").arg(self.settings.runtime_timeout.as_secs().to_string());
            for (name, value) in &self.settings.runtime_env {
                command.arg("--env").arg(format!("{name}={value}"));
            }
            match command.stdin(smol::process::Stdio::null()).status().await {
                Ok(status) if status.success() => {
                    if let Some(stream) = connect(&self.paths) {
                        return stream;
                    }
                    log::error!("monitor: started, but its socket does not answer");
                }
                Ok(status) => log::error!("monitor: could not be started: {status}"),
                Err(e) => log::error!("monitor: {} could not be started: {e}", self.settings.program.display()),
            }
            smol::Timer::after(delay).await;
            delay = (delay * 2).min(Duration::from_secs(5));
        }
    }

    /// Tells when the monitor has not answered for as long as `Settings::patience` says, and when it does again. A hung
    /// monitor keeps its containers running, so it is not killed. Never ends.
    async fn watch_silence(&self, stream: &Async<UnixStream>) -> io::Result<End> {
        let patience = self.settings.patience;
        loop {
            smol::Timer::after(patience / 4).await;
            let silent = self.silence.since.get().is_some_and(|since| since.elapsed() >= patience);
            if self.silence.told.replace(silent) != silent {
                let pid = helper::pid_of(stream).unwrap_or_default();
                self.tell(MonitorEvent::Silent(silent.then(|| silent_because(pid, patience))));
            }
        }
    }
}
