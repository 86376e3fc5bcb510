//! Shutdown of the machine: pods stop in order of their priority within a budget, and the node reports it.
//! `edge-runtime shutdown` requests it (K8s pkg/kubelet/nodeshutdown, which uses logind instead).

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::Node;
use crate::config::AtShutdown;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;
use crate::pod::record::{ContainerState, NodeEnd, SandboxState, StopReason};
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

/// Progress of the shutdown; by default none is in progress.
#[derive(Default)]
pub(super) struct Shutdown {
    under_way: bool,
    /// Pods' records stay unchanged, so that the next boot continues them.
    frozen: bool,
    /// Uids of pods and their grace period; those to stop first are in front.
    groups: VecDeque<(Vec<String>, Duration)>,
    /// The first group has until then; then SIGKILL, once.
    deadline: Option<Mono>,
    killed: bool,
    /// Containers that ended since, while records are frozen.
    ended: BTreeSet<String>,
}

impl Shutdown {
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// The pods take no turns any more.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// An exit that the pod ignores, because it continues at the next boot.
    pub(super) fn ended(&mut self, id: &str) {
        self.ended.insert(id.to_owned());
    }
}

impl Node {
    /// Handles SIGTERM. Returns whether the node continues for a while to stop its pods.
    pub(super) fn stop_asked(&mut self) -> Result<bool, StoreError> {
        // The second signal means it.
        if self.shutdown.under_way || !self.cx.paths.run().join(MARK).exists() {
            return Ok(false);
        }
        let config = self.cx.config.shutdown;
        let (mut normal, mut critical) = (Vec::new(), Vec::new());
        for (uid, entry) in self.cx.pods.iter().filter(|(_, entry)| entry.record.terminal.is_none()) {
            if priority(&entry.pod) >= CRITICAL_PRIORITY { &mut critical } else { &mut normal }.push(uid.clone());
        }
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
            if (!live.is_empty() || uids.iter().any(failing)) && now < deadline {
                return Err(Some(deadline));
            }
            if !live.is_empty() && !self.shutdown.killed {
                for (uid, container, id) in &live {
                    let which = (uid.as_str(), container.as_str(), id.as_str());
                    self.containers.kill(&self.cx, which, StopSignal::Kill, StopReason::PodTerminal);
                }
                self.shutdown.killed = true;
                self.shutdown.deadline = Some(now.after(LAST));
                continue;
            }
            self.shutdown.groups.pop_front();
            self.stop_group();
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
        // A pod that says less gets less, so the group need not wait for the whole budget either.
        let own = |uid: &String| {
            let own = self.cx.pods.get(uid).map_or(DEFAULT_GRACE_S, |entry| termination_grace_s(&entry.pod));
            Duration::from_secs(own.into()).min(grace)
        };
        let longest = uids.iter().map(own).max().unwrap_or_default();
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
        let containers = self.cx.pods.get(uid).into_iter().flat_map(|entry| &entry.record.containers);
        let live = containers.filter_map(|(name, container)| match &container.state {
            ContainerState::Running { id, .. } | ContainerState::Stopping { id, .. } => Some((name, id)),
            _ => None,
        });
        let live = live.filter(|(_, id)| !self.shutdown.ended.contains(*id));
        live.map(|(name, id)| (uid.to_owned(), name.clone(), id.clone())).collect()
    }
}
