//! How a container leaves the monitor: signalled, ended, deleted.

use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use nix::libc::SIGKILL;

use super::container::{Container, State};
use super::jobs::JobKind;
use super::stdio::stamp;
use super::{CALM, Monitor, cgroup, note, runtime, saved};
use crate::exit::{self, ExitRecord};
use crate::protocol::{Answer, Event};
use crate::{files, oci};
use sampan_sys::files::{unless_missing, unmount};
use sampan_sys::pidfd;

impl Monitor {
    /// The container's first process has ended; `None`: its status is unknown. [`Self::tell_exits`] follows soon.
    pub(crate) fn ended(&mut self, id: &str, status: Option<i32>) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let State::Running(running) = &container.state else { return };
        if let Some(output) = container.output.take() {
            let (clients, epoll) = (&mut self.clients, &self.epoll);
            let mut tap = |stream, bytes: &[u8]| clients.show(id, stream, bytes, epoll);
            if let Some(error) = output.finish(&mut self.buffers, &mut tap) {
                note(&format!("log file {}: {error}", container.spec.log_path.display()));
            }
        }
        container.held_up = None;
        let (pid, started_at) = (running.pid, running.started_at.clone());
        let oom_killed = self.was_oom_killed(id);
        self.clients.show_end(id, &self.epoll);
        let (code, signal) = status.map_or((137, None), pidfd::decode_status);
        let record = ExitRecord {
            id: id.to_owned(),
            pid,
            code,
            signal,
            oom_killed,
            unknown: status.is_none(),
            started_at,
            finished_at: stamp(),
        };
        if let Some(container) = self.containers.get_mut(id) {
            container.state = State::Exited(record.clone());
        }
        self.untold.push(record);
        self.untold_since.get_or_insert_with(Instant::now);
    }

    /// Records recent exits, then reports them. An exit that cannot be recorded is reported anyway: it is true, and
    /// this monitor keeps it in memory.
    pub(crate) fn tell_exits(&mut self) {
        self.untold_since = None;
        let records = std::mem::take(&mut self.untold);
        if records.is_empty() {
            return;
        }
        self.trim_at = Some(Instant::now() + CALM);
        if let Err(e) = exit::write_all(&files::exits(&self.options.run), &records) {
            note(&format!("exit records: {e}"));
        }
        for record in records {
            self.clients.tell_all(&Event::Exited(record), &self.epoll);
        }
    }

    pub(crate) fn kill(&mut self, client: u64, id: &str, signal: i32) -> Result<(), String> {
        if self.untold.iter().any(|record| record.id == id) {
            // The news is on its way.
            return Ok(());
        }
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
                if signal == SIGKILL {
                    self.hurry(id);
                }
            }
            State::Running(running) => {
                return running.signal(signal).map_err(|e| format!("signal {signal} to {id}: {e}"));
            }
            // The client has missed the event.
            State::Exited(record) => self.clients.send(client, &Event::Exited(record.clone()), &self.epoll),
            State::Failed { message } => {
                let event = Event::StartFailed { id: id.to_owned(), message: message.clone() };
                self.clients.send(client, &event, &self.epoll);
            }
            State::CleaningUp { .. } => {}
        }
        Ok(())
    }

    pub(crate) fn signal(&self, id: &str, signal: i32) {
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
        if self.untold.iter().any(|record| record.id == id) {
            self.tell_exits();
        }
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
            // A hung deletion also counts: another one would hang beside it.
            return Err(format!("container {id} is being deleted"));
        }
        let pid = runtime::spawn_delete(&container.spec, &self.options.environment)
            .map_err(|e| format!("deleting {id}: starting the OCI runtime: {e}"))?;
        self.add_job(pid, id, JobKind::Delete { asked: Some(asked) });
        Ok(false)
    }

    pub(crate) fn delete_ended(&mut self, id: &str, asked: Option<(u64, u64)>, status: i32) {
        let Some(container) = self.containers.get(id) else { return };
        let deleted = status == 0 && !runtime::state_folder(&container.spec).exists();
        if let State::CleaningUp { message } = &container.state {
            let message = message.clone();
            if !deleted {
                note(&format!("container {id}: {}", oci::failure(&container.spec.bundle, "")));
            }
            self.has_failed(id, message);
        }
        let Some((client, seq)) = asked else { return };
        let mut answer = Answer { answer: seq, ..Answer::default() };
        if deleted {
            self.remove(id);
        } else {
            let Some(container) = self.containers.get(id) else { return };
            answer.error = Some(format!("deleting {id}: {}", oci::failure(&container.spec.bundle, "")));
        }
        self.clients.send(client, &answer, &self.epoll);
    }

    /// The OCI runtime has not returned from deleting it.
    pub(crate) fn delete_failed(&mut self, id: &str, asked: Option<(u64, u64)>, why: &str) {
        let Some(container) = self.containers.get(id) else { return };
        if let State::CleaningUp { message } = &container.state {
            self.has_failed(id, message.clone());
        }
        if let Some((client, seq)) = asked {
            let error = Some(format!("deleting {id}: {why}"));
            self.clients.send(client, &Answer { answer: seq, error, ..Answer::default() }, &self.epoll);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(container) = self.containers.remove(id) {
            self.forget_kills(container.spec.cgroup.as_deref());
            saved::clear(&container.spec.bundle);
        }
    }
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        // runc that is killed early in an `exec` leaves the copy of its own program mounted there, and can then not
        // remove the folder itself.
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
            for entry in fs::read_dir(folder)?.flatten() {
                unmount(&entry.path())?;
            }
            fs::remove_dir_all(folder)
        }
        done => unless_missing(done).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use nix::mount::{MsFlags, mount};

    use super::*;

    #[test]
    fn a_program_left_mounted_does_not_keep_the_state_folder() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("id");
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("state.json"), "{}").expect("a file");
        let point = folder.join("runc.abc");
        fs::write(&point, "").expect("a file");
        let program = std::env::current_exe().expect("this program");
        mount(Some(&program), &point, None::<&str>, MsFlags::MS_BIND, None::<&str>).expect("mounted");
        assert!(fs::remove_file(&point).is_err(), "busy");
        remove_folder(&folder).expect("removed");
        assert!(!folder.exists() && program.exists());
    }
}
