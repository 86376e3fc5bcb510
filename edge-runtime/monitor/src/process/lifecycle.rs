//! A container's way into the monitor: queued, started or failed. How it leaves is in [`super::ending`].

use std::io;

use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::container::{Container, Parent, Running, State};
use super::jobs::JobKind;
use super::saved::{self, Saved, SavedPhase};
use super::stdio::{Output, stamp};
use super::{Monitor, console, note, runtime, token};
use crate::logs::write::LogWriter;
use crate::protocol::{ContainerState, Event, Phase, StartContainer};
use crate::{exit, files, oci};
use sampan_sys::{descriptors, pidfd};

/// Containers in memory at once, ended ones that are not deleted included.
const MAX_CONTAINERS: usize = 1024;
/// Ended children kept for the OCI runtime's word on who they are.
const MAX_EARLY_EXITS: usize = 256;

impl Monitor {
    pub(crate) fn enqueue(&mut self, spec: StartContainer) -> Result<(), String> {
        if self.containers.contains_key(&spec.id) {
            // A repeated request around the death of a monitor. It is the same attempt, and its result is reported
            // anyway.
            return Ok(());
        }
        if exit::read(&files::exits(&self.options.run), &spec.id).is_some() {
            return Err(format!("container {} has run already", spec.id));
        }
        if self.containers.len() >= MAX_CONTAINERS {
            return Err(format!("{MAX_CONTAINERS} containers are known already"));
        }
        let id = spec.id.clone();
        self.insert(spec, State::Queued);
        self.follow_kills(&id);
        self.queue.push_back(id);
        self.begin_queued();
        Ok(())
    }

    pub(crate) fn insert(&mut self, spec: StartContainer, state: State) {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.containers
            .insert(spec.id.clone(), Container { serial, spec, state, output: None, console: None, held_up: None });
    }

    /// Gives waiting starts to free workers.
    pub(crate) fn begin_queued(&mut self) {
        while self.has_free_worker()
            && let Some(id) = self.queue.pop_front()
        {
            if let Err(e) = self.begin(&id) {
                self.start_failed(&id, format!("starting the OCI runtime: {e}"));
            }
        }
    }

    fn begin(&mut self, id: &str) -> io::Result<()> {
        // Reserves descriptors for running containers: a refused start is better than a lost container.
        if descriptors::run_short() {
            return Err(io::Error::other("too many open files: raise the limit (LimitNOFILE, ulimit -n)"));
        }
        let Some(container) = self.containers.get_mut(id) else { return Ok(()) };
        let spec = &container.spec;
        let log =
            LogWriter::open(&spec.log_path, spec.log_max_bytes, spec.log_max_files)?.limited(spec.log_bytes_per_second);
        container.output = Some(Output::open(&spec.bundle, log, spec.stdin && spec.stdin_once && !spec.terminal)?);
        container.console = spec.terminal.then(|| console::listen(&spec.bundle)).transpose()?;
        saved::save(&Saved { spec: spec.clone(), phase: SavedPhase::Starting })?;
        let lock = saved::start_lock(&spec.bundle)?.ok_or_else(|| io::Error::other("another start is under way"))?;
        let pid = runtime::spawn_run(spec, &self.options.environment, &lock)?;
        container.state = State::starting(Some(pid), self.options.runtime_timeout);
        self.add_job(pid, id, JobKind::Run);
        Ok(())
    }

    /// Takes in all children that have ended.
    pub(crate) fn reap(&mut self) {
        while let Some((pid, status)) = pidfd::reap() {
            if let Some(job) = self.jobs.remove(&pid) {
                match job.kind {
                    _ if job.is_given_up() => {}
                    JobKind::Run => self.run_ended(&job.id, status, job.why_killed()),
                    JobKind::Delete { asked } => match job.why_killed() {
                        Some(why) if status != 0 => self.delete_failed(&job.id, asked, &why),
                        _ => self.delete_ended(&job.id, asked, status),
                    },
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
        self.begin_queued();
    }

    fn id_of(&self, pid: i32) -> Option<String> {
        let is_it =
            |c: &&Container| matches!(&c.state, State::Running(r) if r.pid == pid && matches!(r.parent, Parent::Us));
        self.containers.values().find(is_it).map(|c| c.spec.id.clone())
    }

    /// The OCI runtime has returned from `run`.
    fn run_ended(&mut self, id: &str, status: i32, killed: Option<String>) {
        let Some(container) = self.containers.get_mut(id) else { return };
        match oci::read_pid(&container.spec.bundle) {
            Ok(Some(pid)) if status == 0 => self.has_started(id, pid, Parent::Us),
            _ => {
                let printed = container.output.take().map(|output| output.take_error_text(&mut self.buffers));
                let failure = || oci::failure(&container.spec.bundle, &printed.unwrap_or_default());
                let message = killed.unwrap_or_else(failure);
                self.start_failed(id, message);
            }
        }
    }

    pub(crate) fn has_started(&mut self, id: &str, pid: i32, parent: Parent) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if let (Some(console), Some(output)) = (container.console.take(), container.output.as_mut()) {
            match console::receive(&console, &container.spec.bundle) {
                Ok(terminal) => output.switch_to(terminal),
                Err(e) => note(&format!("container {id}: its terminal: {e}")),
            }
        }
        let started_at = stamp();
        let start_time = pidfd::start_time(pid);
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
        let stderr = output
            .stderr
            .as_ref()
            .map_or(Ok(()), |pipe| self.epoll.add(pipe, EpollEvent::new(EpollFlags::EPOLLIN, token::stderr(serial))));
        if let Err(e) = stdout.and(stderr) {
            note(&format!("container {id}: output: {e}"));
        }
    }

    /// Removes the remains of the OCI runtime before the failure is reported.
    pub(crate) fn start_failed(&mut self, id: &str, message: String) {
        let Some(container) = self.containers.get_mut(id) else { return };
        (container.output, container.console) = (None, None);
        if runtime::state_folder(&container.spec).exists() {
            match runtime::spawn_delete(&container.spec, &self.options.environment) {
                Ok(pid) => {
                    container.state = State::CleaningUp { message };
                    return self.add_job(pid, id, JobKind::Delete { asked: None });
                }
                Err(e) => note(&format!("container {id}: deleting: {e}")),
            }
        }
        self.has_failed(id, message);
    }

    pub(crate) fn has_failed(&mut self, id: &str, message: String) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let phase = SavedPhase::Failed { message: message.clone() };
        if let Err(e) = saved::save(&Saved { spec: container.spec.clone(), phase }) {
            note(&format!("container {id}: {e}"));
        }
        (container.output, container.console) = (None, None);
        container.state = State::Failed { message: message.clone() };
        self.clients.tell_all(&Event::StartFailed { id: id.to_owned(), message }, &self.epoll);
    }

    pub(crate) fn forget(&self, id: &str) -> Result<(), String> {
        exit::remove(&files::exits(&self.options.run), id).map_err(|e| format!("exit record of {id}: {e}"))
    }

    pub(crate) fn list(&mut self) -> Vec<ContainerState> {
        self.tell_exits();
        let mut all: Vec<ContainerState> = self.containers.values().map(Container::view).collect();
        let records = exit::read_all(&files::exits(&self.options.run)).into_iter();
        let others = records.filter(|r| !self.containers.contains_key(&r.id));
        all.extend(others.map(|r| ContainerState { id: r.id.clone(), phase: Phase::Exited(r) }));
        all
    }
}
