//! The background task behind [`super::client::MonitorClient`]: the connection's life, calls out, answers and news
//! in. Decides when a monitor is needed; never what to do about a container.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use std::{fs, io};

use smol::Async;
use smol::channel::{Receiver, Sender};
use smol::future::or;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{MonitorEvent, Settings};
use crate::counters;
use crate::paths::Paths;
use crate::sys::time::within;
use crate::sys::vec_map::VecMap;
use crate::sys::{descriptors, helper, pidfd, socket};
use sampan_monitor::exit::{self, ExitRecord};
use sampan_monitor::protocol::{Answer, Call, ContainerState, Event, FromMonitor, Phase, Request, VERSION};
use sampan_monitor::{files, frame};

/// Pauses between connections that are of no use.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a monitor may take to end after it has agreed to.
const FAREWELL: Duration = Duration::from_secs(5);

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

type Pending = RefCell<VecMap<u64, Sender<Answer>>>;

/// Distinguishes a hung monitor from an idle one.
#[derive(Default)]
struct Silence {
    /// Start of the oldest unanswered request; `None` if all are answered.
    since: Cell<Option<Instant>>,
    told: Cell<bool>,
}

impl Silence {
    fn asked(&self) {
        self.since.set(self.since.get().or_else(|| Some(Instant::now())));
    }

    /// `waits`: for another answer.
    fn heard(&self, waits: bool) {
        self.since.set(waits.then(Instant::now));
    }
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

    /// Ends with Ok when all handles are dropped or the monitor has agreed to end, with an error when the connection
    /// breaks. Calls without an answer fail by the drop of their reply channel.
    async fn converse(
        &self,
        stream: &Async<UnixStream>,
        first: Option<Outgoing>,
        told: &mut Option<Vec<ContainerState>>,
    ) -> io::Result<End> {
        let pending: Pending = RefCell::default();
        let mut buffer = Vec::new();
        let (mut writer, mut reader) = (stream, stream);
        self.silence.asked();
        send(&mut writer, 1, Request::Hello { version: VERSION }).await?;
        send(&mut writer, 2, Request::List).await?;
        // Events between the two answers are older than the list and contained in it.
        let containers = loop {
            match receive(&mut reader, &mut buffer).await? {
                Some(FromMonitor::Answer(answer)) if answer.answer == 2 => {
                    break answer.containers.unwrap_or_default();
                }
                // In no list.
                Some(FromMonitor::Event(Event::LogTrouble { reason })) => self.log_trouble(reason),
                _ => {}
            }
        };
        self.listened.set(true);
        self.silence.heard(false);
        let containers: Vec<_> = containers.into_iter().map(|c| self.amend(c)).collect();
        // A monitor spawned for a start has no containers. Records reported before may be forgotten by now, but starts
        // wait in the queue meanwhile: a list without them would declare them lost.
        if first.is_none() && told.as_ref() != Some(&containers) {
            self.tell(MonitorEvent::Reconnected { containers });
        }
        let write = async {
            let mut seq = 2;
            let mut next = first;
            loop {
                let call = match next.take() {
                    Some(call) => call,
                    None => match within(self.settings.patience / 2, self.calls.recv()).await {
                        Some(Ok(call)) => call,
                        Some(Err(_)) => return Ok(End::Dropped),
                        // The answer is discarded: it only shows that the monitor works.
                        None => Outgoing { request: Request::List, reply: smol::channel::bounded(1).0 },
                    },
                };
                self.silence.asked();
                seq += 1;
                let farewell = matches!(call.request, Request::Shutdown).then(|| smol::channel::bounded(1));
                let reply = farewell.as_ref().map_or_else(|| call.reply.clone(), |(reply, _)| reply.clone());
                pending.borrow_mut().insert(seq, reply);
                send(&mut writer, seq, call.request).await?;
                // Later requests are for the next monitor, if this one agrees to leave.
                if let Some((_, answered)) = farewell
                    && let Ok(answer) = answered.recv().await
                {
                    let agreed = answer.error.is_none();
                    let _ = call.reply.try_send(answer);
                    if agreed {
                        return Ok(End::Left);
                    }
                }
            }
        };
        let read = async {
            loop {
                let message = receive(&mut reader, &mut buffer).await?;
                if let Some(FromMonitor::Answer(answer)) = &message {
                    self.silence.heard(pending.borrow().keys().any(|seq| *seq != answer.answer));
                }
                match message {
                    Some(FromMonitor::Answer(answer)) => {
                        let reply = pending.borrow_mut().remove(&answer.answer);
                        if let Some(reply) = reply {
                            let _ = reply.try_send(answer);
                            // A monitor that agrees to leave closes the connection at once: its answer is delivered
                            // first.
                            smol::future::yield_now().await;
                        }
                    }
                    Some(FromMonitor::Event(event)) => self.pass_on(event),
                    None => {}
                }
            }
        };
        or(write, read).await
    }

    fn pass_on(&self, event: Event) {
        let event = match event {
            Event::Started { id, pid, started_at } => {
                self.hold(&id, pid);
                MonitorEvent::Started { id, pid, started_at }
            }
            Event::StartFailed { id, message } => MonitorEvent::StartFailed { id, message },
            Event::Exited(record) => MonitorEvent::Exited(self.settle(record)),
            Event::LogTrouble { reason } => return self.log_trouble(reason),
            // For connections that have asked for it.
            Event::Output { .. } | Event::OutputEnd {} => return,
        };
        self.tell(event);
    }

    fn log_trouble(&self, reason: Option<String>) {
        if self.has_log_trouble.replace(reason.is_some()) || reason.is_some() {
            self.tell(MonitorEvent::LogTrouble(reason));
        }
    }

    fn tell(&self, event: MonitorEvent) {
        // Fails only when the daemon is going down.
        let _ = self.news.try_send(event);
    }

    /// Keeps a pidfd of a running container, if the pid still is this container's.
    fn hold(&self, id: &str, pid: i32) {
        if self.held.borrow().contains_key(id) {
            return;
        }
        let Ok(pidfd) = pidfd::open(pid) else { return };
        if fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(id)) {
            self.held.borrow_mut().insert(id.to_owned(), pidfd);
        }
    }

    fn amend(&self, container: ContainerState) -> ContainerState {
        let phase = match container.phase {
            Phase::Running { pid, started_at } => {
                self.hold(&container.id, pid);
                Phase::Running { pid, started_at }
            }
            Phase::Exited(record) => Phase::Exited(self.settle(record)),
            other => other,
        };
        ContainerState { phase, ..container }
    }

    /// Lets go of an ended container; fills in what its pidfd knows and the monitor could not.
    fn settle(&self, mut record: ExitRecord) -> ExitRecord {
        let held = self.held.borrow_mut().remove(&record.id);
        if record.unknown
            && let Some(status) = held.and_then(|pidfd| pidfd::exit_status(&pidfd, record.pid))
        {
            (record.code, record.signal) = pidfd::decode_status(status);
            record.unknown = false;
            if let Err(e) = exit::write(&self.paths.exits(), &record) {
                log::warn!("exit record of {}: {e}", record.id);
            }
        }
        record
    }
}

fn silent_because(pid: u64, patience: Duration) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or(" unknown").trim();
    format!(
        "the monitor of the containers (process {pid}, state {state}) has not answered for {} s: containers run on, none can \
         be started or stopped",
        patience.as_secs()
    )
}

pub(super) fn connect(paths: &Paths) -> Option<Async<UnixStream>> {
    Async::new(socket::connect(&paths.monitor_socket()).ok()?).ok()
}

/// Waits until the other end is closed: its process has given up its socket, so that a new one may take its place.
async fn until_closed(stream: &Async<UnixStream>) {
    let closed = async {
        let (mut reader, mut buffer) = (stream, [0; 256]);
        while reader.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    };
    let enough = async {
        smol::Timer::after(FAREWELL).await;
    };
    or(closed, enough).await;
}

pub(super) async fn send(stream: &mut &Async<UnixStream>, seq: u64, request: Request) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame::encode(&Call { seq, request }, &mut bytes).map_err(io::Error::other)?;
    stream.write_all(&bytes).await
}

/// Receives the next message; `None` for one that this version does not know.
pub(super) async fn receive(stream: &mut &Async<UnixStream>, buffer: &mut Vec<u8>) -> io::Result<Option<FromMonitor>> {
    loop {
        if let Some(frame) = frame::take(buffer).map_err(io::Error::other)? {
            return Ok(understand(&frame));
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buffer.extend_from_slice(&chunk[..count]),
        }
    }
}

/// An answer whose details are of another version still ends the call that waits for it.
fn understand(bytes: &[u8]) -> Option<FromMonitor> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        answer: u64,
    }
    frame::decode(bytes).ok().or_else(|| {
        let Numbered { answer } = frame::decode(bytes).ok()?;
        let error = Some("its answer is not understood".to_owned());
        Some(FromMonitor::Answer(Answer { answer, error, ..Answer::default() }))
    })
}
