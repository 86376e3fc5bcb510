//! Shutdown of the machine: pods stop in order of their priority within a budget, and the node reports it.
//! `edge-runtime shutdown` requests it (K8s pkg/kubelet/nodeshutdown, which uses logind instead).

pub(super) mod state;

use std::collections::VecDeque;
use std::time::Duration;

use super::Node;
use super::pods::Entry;
use crate::config::AtShutdown;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;
use crate::pod::record::{ContainerState, NodeEnd, PodRecord, SandboxState, StopReason};
use crate::pod::spec::{CRITICAL_PRIORITY, DEFAULT_GRACE_S, priority, termination_grace_s};
use crate::pod::step::StopSignal;
use crate::store::StoreError;

/// Made by the verb `shutdown` before it signals the daemon.
pub const MARK: &str = "shutdown";

const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Time from SIGKILL to the end of a process.
const LAST: Duration = Duration::from_secs(2);

/// Time for the link to send the last reports.
const FAREWELL: Duration = Duration::from_millis(500);

impl Node {
    /// Handles SIGTERM. Returns whether the node continues for a while to stop its pods.
    pub(super) fn stop_asked(&mut self) -> Result<bool, StoreError> {
        // The second signal means it.
        if self.shutdown.under_way || !self.cx.paths.run().join(MARK).exists() {
            return Ok(false);
        }
        let config = self.cx.config.shutdown;
        let [normal, critical] = in_order(self.cx.pods.iter());
        log::info!("the machine shuts down: stopping {} and then {} critical pods", normal.len(), critical.len());
        self.shutdown.under_way = true;
        self.shutdown.frozen = config.pods == AtShutdown::Resume;
        let [grace, critical_grace] =
            [*config.grace_seconds, *config.critical_grace_seconds].map(|seconds| Duration::from_secs(seconds.into()));
        self.shutdown.groups = VecDeque::from([(normal, grace), (critical, critical_grace)]);
        self.cx.node_event(false, "Shutdown", "Shutdown manager detected shutdown event")?;
        self.node_status.force();
        self.cx.look_now();
        self.stop_group();
        Ok(true)
    }

    /// Whether all pods have stopped or had their time; else when to look again.
    pub(super) fn shutdown_step(&mut self, now: Mono) -> Result<(), Option<Mono>> {
        if !self.shutdown.under_way {
            return Err(None);
        }
        loop {
            let Some((uids, _)) = self.shutdown.groups.front() else { return Ok(()) };
            let live: Vec<(String, String, String)> = uids.iter().flat_map(|uid| self.live(uid)).collect();
            let deadline = self.shutdown.deadline.unwrap_or(now);
            // A failing pod has ended after its teardown: only then its end can be reported.
            let failing = |uid: &String| {
                let entry = self.cx.pods.get(uid).filter(|_| !self.shutdown.frozen);
                entry.is_some_and(|entry| entry.record.sandbox.state != SandboxState::Gone)
            };
            let is_live = !live.is_empty();
            let is_there = is_live || uids.iter().any(failing);
            match next(is_live, is_there, self.shutdown.killed, now < deadline) {
                Next::Wait => return Err(Some(deadline)),
                Next::Kill => {
                    for (uid, container, id) in &live {
                        let which = (uid.as_str(), container.as_str(), id.as_str());
                        self.containers.kill(&self.cx, which, StopSignal::Kill, StopReason::PodTerminal);
                    }
                    self.shutdown.killed = true;
                    self.shutdown.deadline = Some(now.after(LAST));
                }
                Next::Group => {
                    self.shutdown.groups.pop_front();
                    self.stop_group();
                }
            }
        }
    }

    /// Sends pending reports while there is a link; the others wait in the store.
    pub(super) async fn leave(&mut self) -> Result<(), StoreError> {
        self.housekeeping()?;
        self.cx.delete_acknowledged()?;
        self.exit_sync.committed(self.cx.mono());
        self.exit_sync.sync_now(&mut self.cx, &self.containers.monitor)?;
        if self.cx.connection().is_some() {
            self.cx.outgoing.hurry();
            let _ = self.cx.outgoing.flush(|row| self.exit_sync.lets_leave(row), self.cx.link.as_ref(), self.cx.mono());
            smol::Timer::after(FAREWELL).await;
        }
        log::info!("all pods have stopped");
        Ok(())
    }

    /// Asks the containers of the first group to stop.
    fn stop_group(&mut self) {
        let Some((uids, grace)) = self.shutdown.groups.front().cloned() else { return };
        self.shutdown.killed = false;
        let grace_s = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        let own = |uid: &String| self.cx.pods.get(uid).map_or(DEFAULT_GRACE_S, |entry| termination_grace_s(&entry.pod));
        let longest = longest(uids.iter().map(own), grace);
        let last = if self.shutdown.frozen { Duration::ZERO } else { LAST };
        self.shutdown.deadline = Some(self.cx.mono().after(longest + last));
        for uid in uids {
            self.probes.stop(&uid);
            if self.shutdown.frozen {
                for (uid, container, id) in self.live(&uid) {
                    let signal = StopSignal::Stop { grace: longest };
                    self.containers.kill(&self.cx, (&uid, &container, &id), signal, StopReason::PodTerminal);
                }
            } else {
                let end = NodeEnd { grace_s, disruption: true };
                self.cx.tell(&uid, PodEvent::Evict { reason: REASON.into(), message: MESSAGE.into(), end });
            }
        }
    }

    /// Containers of the pod that have a process: uid, name, id.
    fn live(&self, uid: &str) -> Vec<(String, String, String)> {
        let records = self.cx.pods.get(uid).into_iter().map(|entry| &entry.record);
        let live = records.flat_map(with_process).filter(|(_, id)| !self.shutdown.ended.contains(*id));
        live.map(|(name, id)| (uid.to_owned(), name.to_owned(), id.to_owned())).collect()
    }
}

/// What to do about the first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Wait,
    /// Its time is over: SIGKILL.
    Kill,
    /// It has stopped, or cannot be stopped: the next one.
    Group,
}

/// `is_live`: a container has a process; `is_there`: something of its pods is not taken down.
fn next(is_live: bool, is_there: bool, was_killed: bool, is_in_time: bool) -> Next {
    if is_there && is_in_time {
        Next::Wait
    } else if is_live && !was_killed {
        Next::Kill
    } else {
        Next::Group
    }
}

/// Uids of the pods that stop first, and of the critical ones. A pod that has ended has nothing to stop.
fn in_order<'a>(pods: impl Iterator<Item = (&'a String, &'a Entry)>) -> [Vec<String>; 2] {
    let mut groups = [Vec::new(), Vec::new()];
    for (uid, entry) in pods.filter(|(_, entry)| entry.record.terminal.is_none()) {
        groups[usize::from(priority(&entry.pod) >= CRITICAL_PRIORITY)].push(uid.clone());
    }
    groups
}

/// Time for a group whose pods ask for these seconds. A pod that says less gets less, so the group need not wait for the
/// whole budget either.
fn longest(own: impl Iterator<Item = u32>, budget: Duration) -> Duration {
    own.map(|seconds| Duration::from_secs(seconds.into()).min(budget)).max().unwrap_or_default()
}

/// Containers of the pod that have a process: name and id.
fn with_process(record: &PodRecord) -> impl Iterator<Item = (&str, &str)> {
    record.containers.iter().filter_map(|(name, container)| match &container.state {
        ContainerState::Running { id, .. } | ContainerState::Stopping { id, .. } => Some((&**name, &**id)),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
