//! Adopts containers of a former monitor: running ones continue here, and unfinished starts get exactly one result.

use std::time::{Duration, Instant};
use std::{fs, io};

use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::container::{Container, Parent, Running, State};
use super::jobs::did_not_return;
use super::saved::{self, SavedPhase};
use super::stdio::Output;
use super::{Monitor, note, token};
use crate::logs::write::LogWriter;
use crate::protocol::StartContainer;
use crate::{exit, files, oci};
use sampan_sys::{descriptors, pidfd};

/// How long an exit may be unreadable before it counts as unknown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause before output that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(5);

impl Monitor {
    /// Takes over from the bundles' `monitor.json`. Called once, before any client.
    ///
    /// # Errors
    /// Same as [`saved::load_all`].
    pub(crate) fn adopt(&mut self) -> io::Result<()> {
        for saved in saved::load_all(&files::bundles(&self.options.run))? {
            let id = saved.spec.id.clone();
            if let Some(record) = exit::read(&files::exits(&self.options.run), &id) {
                self.insert(saved.spec, State::Exited(record));
                continue;
            }
            match saved.phase {
                SavedPhase::Failed { message } => self.insert(saved.spec, State::Failed { message }),
                SavedPhase::Starting => {
                    self.insert(saved.spec, State::starting(None, self.options.runtime_timeout));
                }
                SavedPhase::Running { pid, start_time, started_at } => {
                    let parent = hold(pid, start_time).filter(|_| start_time.is_some() || belongs(pid, &saved.spec));
                    let is_held = parent.is_some();
                    let parent = parent.unwrap_or(Parent::Us);
                    self.insert(saved.spec, State::Running(Running { pid, started_at, parent }));
                    if is_held {
                        self.continue_output(&id);
                        self.watch_end(&id);
                    } else {
                        self.ended(&id, None);
                    }
                }
            }
        }
        for id in self.containers.keys().cloned().collect::<Vec<_>>() {
            self.follow_kills(&id);
        }
        Ok(())
    }

    /// Starts that a former monitor began: once the OCI runtime has returned, they have succeeded or are undone.
    pub(crate) fn look_at_inherited_starts(&mut self) {
        let is_inherited = |state: &State| matches!(state, State::Starting { runtime_pid: None, .. });
        let inherited = self.containers.values().filter(|c| is_inherited(&c.state)).map(|c| c.spec.clone());
        for spec in inherited.collect::<Vec<_>>() {
            match saved::start_lock(&spec.bundle) {
                Ok(None) if self.end_inherited(&spec) => {
                    self.has_failed(
                        &spec.id,
                        format!("{} and could not be killed", did_not_return(self.options.runtime_timeout)),
                    );
                }
                Ok(None) => {}
                Ok(Some(_free)) => self.resolve_start(&spec),
                Err(e) => {
                    note(&format!("container {}: {e}", spec.id));
                    if !descriptors::is_shortage(&e) {
                        self.resolve_start(&spec);
                    }
                }
            }
        }
    }

    fn resolve_start(&mut self, spec: &StartContainer) {
        let pid = match oci::read_pid(&spec.bundle) {
            Ok(pid) => pid,
            // It may well run.
            Err(e) => return note(&format!("container {}: {e}", spec.id)),
        };
        let Some(pid) = pid else {
            // Not started, or not known to be: undone by `delete --force`, never started again under this id.
            return self.start_failed(&spec.id, "the monitor died while the container was being started".to_owned());
        };
        self.continue_output(&spec.id);
        let parent = hold(pid, pidfd::start_time(pid)).filter(|_| belongs(pid, spec));
        let is_held = parent.is_some();
        self.has_started(&spec.id, pid, parent.unwrap_or(Parent::Us));
        if is_held {
            self.watch_end(&spec.id);
        } else {
            self.ended(&spec.id, None);
        }
    }

    fn continue_output(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let spec = &container.spec;
        if descriptors::run_short() {
            // The monitor's own descriptors come first: without them nothing would be read. This is retried.
            return note(&format!("container {id}: output: too many open files"));
        }
        if spec.terminal {
            // It was hung up when the former monitor died.
            return note(&format!("container {id}: its terminal is lost with the former monitor"));
        }
        // Without a log its pipes are read anyway: they hold 64 KiB, and then the container would block forever.
        let (log, opened) = LogWriter::open_some_time(&spec.log_path, spec.log_max_bytes, spec.log_max_files);
        if let Err(e) = opened {
            note(&format!("log file {}: {e}", spec.log_path.display()));
        }
        match Output::open(&spec.bundle, log.limited(spec.log_bytes_per_second), false) {
            Ok(output) => container.output = Some(output),
            Err(e) => note(&format!("container {id}: output: {e}")),
        }
        if matches!(container.state, State::Running(_)) {
            self.watch_output(id);
        }
    }

    /// Opens the pipes of containers that could not be opened at adoption: their output is not read. Returns whether
    /// any is left.
    pub(crate) fn look_at_unread(&mut self) -> bool {
        let unread = |c: &&Container| c.output.is_none() && !c.spec.terminal && matches!(c.state, State::Running(_));
        let ids: Vec<String> = self.containers.values().filter(unread).map(|c| c.spec.id.clone()).collect();
        if ids.is_empty() || self.unread_at.is_some_and(|at| at.elapsed() < AGAIN) {
            return !ids.is_empty();
        }
        self.unread_at = Some(Instant::now());
        ids.iter().for_each(|id| self.continue_output(id));
        true
    }

    fn watch_end(&mut self, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        let State::Running(Running { parent: Parent::Other { pidfd: Some(pidfd), .. }, .. }) = &container.state else {
            return;
        };
        if let Err(e) = self.epoll.add(pidfd, EpollEvent::new(EpollFlags::EPOLLIN, token::ended(container.serial))) {
            note(&format!("container {id}: pidfd: {e}"));
        }
    }

    /// The pidfd of an adopted container reports its end.
    pub(crate) fn adopted_ended(&mut self, serial: u64) {
        let Some(container) = self.containers.values_mut().find(|c| c.serial == serial) else { return };
        if let State::Running(Running { parent: Parent::Other { pidfd: Some(pidfd), ended, .. }, .. }) =
            &mut container.state
        {
            // A pidfd stays readable: from here on the timer looks.
            let _ = self.epoll.delete(&*pidfd);
            ended.get_or_insert_with(Instant::now);
        }
    }

    /// Adopted containers that have ended: asks how, until their parent has reaped them.
    pub(crate) fn look_at_adopted(&mut self) {
        let mut news = Vec::new();
        for (id, container) in self.containers.iter() {
            let State::Running(Running { pid, parent: Parent::Other { pidfd, start_time, ended }, .. }) =
                &container.state
            else {
                continue;
            };
            match (pidfd, ended) {
                (Some(pidfd), Some(since)) => match pidfd::exit_status(pidfd, *pid) {
                    Some(status) => news.push((id.clone(), Some(status))),
                    None if since.elapsed() > PATIENCE => news.push((id.clone(), None)),
                    None => {}
                },
                (Some(_), None) => {}
                (None, _) => {
                    let is_it = |stat: &pidfd::Stat| stat.is_of(*start_time) && !stat.ended;
                    if pidfd::look(*pid).is_ok_and(|stat| stat.filter(is_it).is_none()) {
                        news.push((id.clone(), None));
                    }
                }
            }
        }
        for (id, status) in news {
            self.ended(&id, status);
        }
    }
}

/// Opens a handle of the process if it is still the one that started at `start_time`, perhaps ended and not reaped; of
/// any process if its start time is unknown. The order matters: a check after the pidfd is open stays true for the
/// pidfd. If nothing can be known without a free descriptor, the process counts as running and is checked by the timer:
/// treating it as ended would start a second one.
fn hold(pid: i32, start_time: Option<u64>) -> Option<Parent> {
    let by_timer = Parent::Other { pidfd: None, start_time, ended: None };
    let pidfd = match pidfd::open(pid) {
        Ok(_) if descriptors::run_short() => None,
        Ok(pidfd) => Some(pidfd),
        Err(e) if pidfd::is_gone(&e) => return None,
        // A pid that is a thread's by now.
        Err(e) if e.raw_os_error() == Some(nix::libc::EINVAL) => return None,
        Err(_) => None,
    };
    match pidfd::look(pid) {
        Ok(Some(stat)) if stat.is_of(start_time) => {
            Some(Parent::Other { pidfd, start_time: Some(stat.start_time), ended: None })
        }
        Ok(_) => None,
        Err(_) => Some(by_timer),
    }
}

/// Whether the process lives in the container's cgroup: a pid file may be older than the pid's present owner.
fn belongs(pid: i32, spec: &StartContainer) -> bool {
    let Some(cgroup) = &spec.cgroup else { return true };
    match fs::read_to_string(format!("/proc/{pid}/cgroup")) {
        Ok(text) => text.contains(cgroup.trim_start_matches('/')),
        Err(e) => !pidfd::is_gone(&e),
    }
}
