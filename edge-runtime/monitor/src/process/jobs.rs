//! Running processes of the OCI runtime: how many at once, their timeout, and what happens to one that hangs.
//!
//! A runtime hangs where a mount hangs (a hostPath on a dead NFS server), in a sleep that not even SIGKILL ends. It must
//! hold up its own container alone.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use super::container::State;
use super::{Monitor, note, saved};
use crate::protocol::StartContainer;
use sampan_sys::gather::Gather;
use sampan_sys::{family, pidfd};

/// A start that takes longer than this does not delay others...
const SLOW: Duration = Duration::from_secs(5);
/// ...up to this number of slow starts.
const MAX_SLOW: usize = 16;
/// Time for a start in progress after SIGKILL of the container: most end sooner.
const KILLED: Duration = Duration::from_secs(2);
/// Time from SIGKILL of the runtime until it is given up.
const REAPED: Duration = Duration::from_secs(5);

/// A running OCI runtime process of ours.
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) kind: JobKind,
    since: Instant,
    /// It has to have returned by then.
    deadline: Instant,
    /// Why it was killed.
    killed: Option<String>,
    /// It does not even die. Its container is given up; it is reaped if it ever ends.
    given_up: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum JobKind {
    Run,
    /// `delete --force`; answered to this client and call when asked for.
    Delete {
        asked: Option<(u64, u64)>,
    },
}

impl Job {
    /// The result for its container was reported already.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Why it was killed, if it was.
    pub(crate) fn why_killed(&self) -> Option<String> {
        self.killed.clone()
    }
}

impl Monitor {
    pub(crate) fn add_job(&mut self, pid: i32, id: &str, kind: JobKind) {
        let since = Instant::now();
        let deadline = since + self.options.runtime_timeout;
        self.jobs.insert(pid, Job { id: id.to_owned(), kind, since, deadline, killed: None, given_up: false });
        self.look_for_dead = true;
    }

    /// Whether one more start may begin.
    pub(crate) fn has_free_worker(&self) -> bool {
        let at_work = self.jobs.values().filter(|job| !job.given_up);
        let quick = at_work.clone().filter(|job| job.since.elapsed() < SLOW).count();
        quick < self.options.workers && at_work.count() < self.options.workers + MAX_SLOW
    }

    /// SIGKILL has come for a container that is being started.
    pub(crate) fn hurry(&mut self, id: &str) {
        let by = Instant::now() + KILLED;
        for job in self.jobs.values_mut().filter(|job| job.id == id && matches!(job.kind, JobKind::Run)) {
            job.deadline = job.deadline.min(by);
        }
        if let Some(State::Starting { deadline, .. }) = self.containers.get_mut(id).map(|c| &mut c.state) {
            *deadline = (*deadline).min(by);
        }
    }

    /// Kills processes after their timeout, and gives up those that survive SIGKILL. Returns when to look again.
    pub(crate) fn look_at_jobs(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let late = |job: &Job| !job.given_up && job.deadline <= now;
        let late: Vec<i32> = self.jobs.iter().filter(|(_, job)| late(job)).map(|(pid, _)| *pid).collect();
        for pid in late {
            self.press_job(pid, now);
        }
        self.begin_queued();
        let due = self.jobs.values().filter(|job| !job.given_up).map(|job| match self.queue.is_empty() {
            true => job.deadline,
            // A slow one makes room.
            false if job.since.elapsed() < SLOW => job.deadline.min(job.since + SLOW),
            false => job.deadline,
        });
        due.min().map(|at| at.saturating_duration_since(now))
    }

    fn press_job(&mut self, pid: i32, now: Instant) {
        let Some(job) = self.jobs.get_mut(&pid) else { return };
        let (id, kind) = (job.id.clone(), job.kind);
        if job.killed.is_none() {
            let why = did_not_return(job.since.elapsed());
            note(&format!("container {id}: {why}: killing it"));
            (job.killed, job.deadline) = (Some(why), now + REAPED);
            // Ours and not reaped, so the pid is its own.
            family::kill_all(&BTreeSet::from([pid]));
            return;
        }
        job.given_up = true;
        let why = job.killed.clone().unwrap_or_default();
        note(&format!("container {id}: the OCI runtime (pid {pid}) does not die either: going on without it"));
        match kind {
            // The hung process may hold a lock, or the state may be incomplete: another one could not clean up now.
            JobKind::Run => self.has_failed(&id, format!("{why} and could not be killed")),
            JobKind::Delete { asked } => self.delete_failed(&id, asked, &why),
        }
    }

    /// A start that a former monitor began has not returned: ends it. Whether it has to be given up.
    pub(crate) fn end_inherited(&mut self, spec: &StartContainer) -> bool {
        let Some(container) = self.containers.get_mut(&spec.id) else { return false };
        let State::Starting { deadline, killed, .. } = &mut container.state else { return false };
        let now = Instant::now();
        if now < *deadline {
            return false;
        }
        if std::mem::replace(killed, true) {
            return true;
        }
        *deadline = now + REAPED;
        note(&format!("container {}: the OCI runtime of a former monitor did not return: killing it", spec.id));
        family::kill_all(&starters(spec));
        false
    }
}

/// Text of the start's failure and of events.
pub(crate) fn did_not_return(after: Duration) -> String {
    format!("the OCI runtime did not return within {} s", after.as_secs().max(1))
}

/// Processes that hold the start's lock open: the runtime and its forks, even if they were reparented.
fn starters(spec: &StartContainer) -> BTreeSet<i32> {
    let Ok(lock) = fs::canonicalize(saved::lock_file(&spec.bundle)) else { return BTreeSet::new() };
    let holds = |pid: i32| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        fds.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == lock))
    };
    let own = std::process::id();
    pidfd::all().filter(|pid| u32::try_from(*pid) != Ok(own) && holds(*pid)).into_set()
}
