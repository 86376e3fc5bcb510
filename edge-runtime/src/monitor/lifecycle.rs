//! A container's way through the monitor: queued, started, signalled, ended, deleted.

use std::fs;
use std::io;
use std::time::Instant;

use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::container::{Container, Parent, Running, State};
use super::exit::{self, ExitRecord};
use super::process::{CALM, Job, JobKind, Monitor, note, token};
use super::protocol::{Answer, ContainerState, Event, Phase, StartContainer};
use super::saved::{self, Saved, SavedPhase};
use super::stdio::{Output, stamp};
use super::{cgroup, pidfd, runtime};
use crate::logs::write::LogWriter;

/// Containers in memory at once, ended ones that are not deleted included.
const MAX_CONTAINERS: usize = 1024;
/// Ended children kept for the OCI runtime's word on who they are.
const MAX_EARLY_EXITS: usize = 256;

impl Monitor {
    pub(crate) fn enqueue(&mut self, spec: StartContainer) -> Result<(), String> {
        if self.containers.contains_key(&spec.id) {
            return Err(format!("container {} is known already", spec.id));
        }
        if exit::read(&self.options.paths.exits(), &spec.id).is_some() {
            return Err(format!("container {} has run already", spec.id));
        }
        if self.containers.len() >= MAX_CONTAINERS {
            return Err(format!("{MAX_CONTAINERS} containers are known already"));
        }
        let id = spec.id.clone();
        self.insert(spec, State::Queued);
        self.queue.push_back(id);
        self.begin_queued();
        Ok(())
    }

    pub(crate) fn insert(&mut self, spec: StartContainer, state: State) {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.containers.insert(spec.id.clone(), Container { serial, spec, state, output: None });
    }

    /// Gives waiting starts to free workers.
    pub(crate) fn begin_queued(&mut self) {
        while self.jobs.len() < self.options.workers
            && let Some(id) = self.queue.pop_front()
        {
            if let Err(e) = self.begin(&id) {
                self.start_failed(&id, format!("starting the OCI runtime: {e}"));
            }
        }
    }

    fn begin(&mut self, id: &str) -> io::Result<()> {
        let Some(container) = self.containers.get_mut(id) else { return Ok(()) };
        let spec = &container.spec;
        let log = LogWriter::open(&spec.log_path, spec.log_max_bytes, spec.log_max_files)?;
        container.output = Some(Output::open(&spec.bundle, log)?);
        saved::save(&Saved { spec: spec.clone(), phase: SavedPhase::Starting })?;
        let lock = saved::start_lock(&spec.bundle)?.ok_or_else(|| io::Error::other("another start is under way"))?;
        let pid = runtime::spawn_run(spec, &self.options.environment, &lock)?;
        container.state = State::Starting { runtime_pid: Some(pid), signals: Vec::new() };
        self.jobs.insert(pid, Job { id: id.to_owned(), kind: JobKind::Run });
        self.look_for_dead = true;
        Ok(())
    }

    /// Takes in all children that have ended.
    pub(crate) fn reap(&mut self) {
        while let Some((pid, status)) = pidfd::reap() {
            if let Some(job) = self.jobs.remove(&pid) {
                match job.kind {
                    JobKind::Run => self.run_ended(&job.id, status),
                    JobKind::Delete { asked } => self.delete_ended(&job.id, asked, status),
                }
            } else if let Some(id) = self.id_of(pid) {
                self.ended(&id, Some(status));
            } else if self.early_exits.len() < MAX_EARLY_EXITS {
                self.early_exits.insert(pid, status);
            }
        }
        if !self.jobs.values().any(|job| matches!(job.kind, JobKind::Run)) {
            self.early_exits.clear();
        }
        // First the waiting starts: the runtime works while the disk does.
        self.begin_queued();
        self.tell_exits();
    }

    fn id_of(&self, pid: i32) -> Option<String> {
        let is_it =
            |c: &&Container| matches!(&c.state, State::Running(r) if r.pid == pid && matches!(r.parent, Parent::Us));
        self.containers.values().find(is_it).map(|c| c.spec.id.clone())
    }

    /// The OCI runtime has returned from `run`.
    fn run_ended(&mut self, id: &str, status: i32) {
        let Some(container) = self.containers.get_mut(id) else { return };
        match runtime::read_pid(&container.spec.bundle) {
            Some(pid) if status == 0 => self.has_started(id, pid, Parent::Us),
            _ => {
                let printed = container.output.take().map(|output| output.take_error_text(&mut self.buffers));
                let message = runtime::failure(&container.spec.bundle, &printed.unwrap_or_default());
                self.start_failed(id, message);
            }
        }
    }

    pub(crate) fn has_started(&mut self, id: &str, pid: i32, parent: Parent) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let started_at = stamp();
        let start_time = pidfd::stat(pid).map(|stat| stat.start_time);
        let phase = SavedPhase::Running { pid, start_time, started_at: started_at.clone() };
        if let Err(e) = saved::save(&Saved { spec: container.spec.clone(), phase }) {
            note(&format!("container {id}: {e}"));
        }
        let running = Running { pid, started_at: started_at.clone(), parent };
        let before = std::mem::replace(&mut container.state, State::Running(running));
        self.watch_output(id);
        self.clients.tell_all(&Event::Started { id: id.to_owned(), pid, started_at }, &self.epoll);
        if let State::Starting { signals, .. } = before {
            for signal in signals {
                self.signal(id, signal);
            }
        }
        if let Some(status) = self.early_exits.remove(&pid) {
            self.ended(id, Some(status));
        }
    }

    /// Copies the container's output from now on.
    pub(crate) fn watch_output(&mut self, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        let Some(output) = &container.output else { return };
        let serial = container.serial;
        let stdout = self.epoll.add(&output.stdout, EpollEvent::new(EpollFlags::EPOLLIN, token::stdout(serial)));
        let stderr = self.epoll.add(&output.stderr, EpollEvent::new(EpollFlags::EPOLLIN, token::stderr(serial)));
        if let Err(e) = stdout.and(stderr) {
            note(&format!("container {id}: output: {e}"));
        }
    }

    /// Whatever the OCI runtime has left of it is removed before anyone is told.
    pub(crate) fn start_failed(&mut self, id: &str, message: String) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.output = None;
        if runtime::state_folder(&container.spec).exists() {
            match runtime::spawn_delete(&container.spec, &self.options.environment) {
                Ok(pid) => {
                    container.state = State::CleaningUp { message };
                    self.jobs.insert(pid, Job { id: id.to_owned(), kind: JobKind::Delete { asked: None } });
                    self.look_for_dead = true;
                    return;
                }
                Err(e) => note(&format!("container {id}: deleting: {e}")),
            }
        }
        self.has_failed(id, message);
    }

    fn has_failed(&mut self, id: &str, message: String) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let phase = SavedPhase::Failed { message: message.clone() };
        if let Err(e) = saved::save(&Saved { spec: container.spec.clone(), phase }) {
            note(&format!("container {id}: {e}"));
        }
        container.state = State::Failed { message: message.clone() };
        self.clients.tell_all(&Event::StartFailed { id: id.to_owned(), message }, &self.epoll);
    }

    /// The container's first process has ended; `None`: nobody knows how. [`Self::tell_exits`] follows in the same
    /// turn of the loop.
    pub(crate) fn ended(&mut self, id: &str, status: Option<i32>) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let State::Running(running) = &container.state else { return };
        if let Some(error) = container.output.take().and_then(|output| output.finish(&mut self.buffers)) {
            note(&format!("log file {}: {error}", container.spec.log_path.display()));
        }
        let (code, signal) = status.map_or((137, None), pidfd::decode_status);
        let record = ExitRecord {
            id: id.to_owned(),
            pid: running.pid,
            code,
            signal,
            oom_killed: container.spec.cgroup.as_deref().is_some_and(cgroup::oom_killed),
            unknown: status.is_none(),
            started_at: running.started_at.clone(),
            finished_at: stamp(),
        };
        container.state = State::Exited(record.clone());
        self.untold.push(record);
    }

    /// Makes the exits of this turn durable, then tells them.
    pub(crate) fn tell_exits(&mut self) {
        let records = std::mem::take(&mut self.untold);
        if records.is_empty() {
            return;
        }
        self.trim_at = Some(Instant::now() + CALM);
        if let Err(e) = exit::write_all(&self.options.paths.exits(), &records) {
            note(&format!("exit records: {e}"));
        }
        for record in records {
            self.clients.tell_all(&Event::Exited(record), &self.epoll);
        }
    }

    pub(crate) fn kill(&mut self, client: u64, id: &str, signal: i32) -> Result<(), String> {
        let Some(container) = self.containers.get_mut(id) else { return Err(format!("no container {id}")) };
        match &mut container.state {
            State::Queued => {
                self.queue.retain(|queued| queued != id);
                self.has_failed(id, "stopped before it was started".to_owned());
            }
            State::Starting { signals, .. } => {
                if !signals.contains(&signal) {
                    signals.push(signal);
                }
            }
            State::Running(running) => {
                return running.signal(signal).map_err(|e| format!("signal {signal} to {id}: {e}"));
            }
            // Whoever asks has missed the news.
            State::Exited(record) => self.clients.tell(client, &Event::Exited(record.clone()), &self.epoll),
            State::Failed { message } => {
                let event = Event::StartFailed { id: id.to_owned(), message: message.clone() };
                self.clients.tell(client, &event, &self.epoll);
            }
            State::CleaningUp { .. } => {}
        }
        Ok(())
    }

    fn signal(&self, id: &str, signal: i32) {
        let Some(Container { state: State::Running(running), .. }) = self.containers.get(id) else { return };
        if let Err(e) = running.signal(signal) {
            note(&format!("signal {signal} to {id}: {e}"));
        }
    }

    /// Whether it is done already; if not, `asked` gets its answer when it is.
    ///
    /// What the OCI runtime would do in 10 ms of CPU time is removing a cgroup and a folder; only where that does
    /// not suffice is it called.
    pub(crate) fn delete(&mut self, id: &str, asked: (u64, u64)) -> Result<bool, String> {
        let Some(container) = self.containers.get(id) else { return Ok(true) };
        match &container.state {
            State::Exited(_) | State::Failed { .. } => {}
            _ => return Err(format!("container {id} has not ended")),
        }
        let state_folder = runtime::state_folder(&container.spec);
        let removed = match &container.spec.cgroup {
            Some(cgroup) => cgroup::remove(cgroup).and_then(|()| remove_folder(&state_folder)),
            None if state_folder.exists() => Err(io::Error::other("cgroup not told")),
            None => Ok(()),
        };
        if removed.is_ok() {
            self.remove(id);
            return Ok(true);
        }
        if self.jobs.values().any(|job| job.id == id) {
            return Err(format!("container {id} is being deleted"));
        }
        let pid = runtime::spawn_delete(&container.spec, &self.options.environment)
            .map_err(|e| format!("deleting {id}: starting the OCI runtime: {e}"))?;
        self.jobs.insert(pid, Job { id: id.to_owned(), kind: JobKind::Delete { asked: Some(asked) } });
        self.look_for_dead = true;
        Ok(false)
    }

    fn delete_ended(&mut self, id: &str, asked: Option<(u64, u64)>, status: i32) {
        let Some(container) = self.containers.get(id) else { return };
        let deleted = status == 0 && !runtime::state_folder(&container.spec).exists();
        if let State::CleaningUp { message } = &container.state {
            let message = message.clone();
            if !deleted {
                note(&format!("container {id}: {}", runtime::failure(&container.spec.bundle, "")));
            }
            self.has_failed(id, message);
        }
        let Some((client, seq)) = asked else { return };
        let mut answer = Answer { answer: seq, ..Answer::default() };
        if deleted {
            self.remove(id);
        } else {
            let Some(container) = self.containers.get(id) else { return };
            answer.error = Some(format!("deleting {id}: {}", runtime::failure(&container.spec.bundle, "")));
        }
        self.clients.answer(client, &answer, &self.epoll);
    }

    fn remove(&mut self, id: &str) {
        if let Some(container) = self.containers.remove(id) {
            saved::clear(&container.spec.bundle);
        }
    }

    pub(crate) fn forget(&self, id: &str) -> Result<(), String> {
        exit::remove(&self.options.paths.exits(), id).map_err(|e| format!("exit record of {id}: {e}"))
    }

    pub(crate) fn list(&self) -> Vec<ContainerState> {
        let mut all: Vec<ContainerState> = self.containers.values().map(Container::view).collect();
        let records = exit::read_all(&self.options.paths.exits()).into_iter();
        let others = records.filter(|r| !self.containers.contains_key(&r.id));
        all.extend(others.map(|r| ContainerState { id: r.id.clone(), phase: Phase::Exited(r) }));
        all
    }
}

fn remove_folder(folder: &std::path::Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
