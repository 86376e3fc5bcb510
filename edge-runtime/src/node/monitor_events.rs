//! Converts the monitor's events of containers into news for their pods.

use jiff::Timestamp;

use super::Node;
use super::containers::ContainerRef;
use crate::monitor::client::MonitorEvent;
use crate::pod::event::{Exit, PodEvent, StartFailure};
use crate::store::StoreError;
use sampan_monitor::exit::ExitRecord;
use sampan_monitor::protocol::{ContainerState, Phase};

impl Node {
    pub(super) fn take_monitor(&mut self, event: MonitorEvent) -> Result<(), StoreError> {
        match event {
            MonitorEvent::Started { id, pid, started_at } => self.started(&id, pid, &started_at),
            MonitorEvent::StartFailed { id, message } => self.start_failed(&id, StartFailure::Run, &message),
            MonitorEvent::Exited(exit) => self.exited(&exit)?,
            MonitorEvent::LogTrouble(reason) => self.log_trouble(reason),
            MonitorEvent::Silent(why) => self.monitor_silent(why),
            MonitorEvent::Reconnected { containers } => self.resume(containers)?,
        }
        Ok(())
    }

    /// The containers continue; the node reports it.
    fn log_trouble(&mut self, reason: Option<String>) {
        match &reason {
            Some(reason) => log::error!("logs cannot be written: {}", brief(reason)),
            None => log::info!("logs can be written again"),
        }
        self.node_status.log_trouble(reason.map(|reason| brief(&reason)));
        self.cx.look_again(self.cx.mono());
    }

    /// The node is not Ready while the monitor hangs, as a kubelet is not whose container runtime does not answer.
    fn monitor_silent(&mut self, why: Option<String>) {
        match &why {
            Some(why) => log::error!("{why}"),
            None => log::info!("the monitor of the containers answers again"),
        }
        self.node_status.monitor_silent(why);
        self.cx.look_again(self.cx.mono());
    }

    fn started(&mut self, id: &str, pid: i32, started_at: &str) {
        let Some(ContainerRef { uid, container, .. }) = self.containers.get(id).cloned() else {
            log::warn!("container {id} started, but no pod here owns it");
            return;
        };
        let started_at = self.timestamp(started_at);
        self.launch.containers.cpus.started();
        self.cx.tell(&uid, PodEvent::Started { container, id: id.to_owned(), pid, started_at });
    }

    pub(super) fn start_failed(&mut self, id: &str, failure: StartFailure, message: &str) {
        let Some(ContainerRef { uid, container, .. }) = self.containers.get(id).cloned() else { return };
        let message = message.to_owned();
        self.cx.tell(&uid, PodEvent::StartFailed { container, id: id.to_owned(), failure, message });
    }

    fn exited(&mut self, exit: &ExitRecord) -> Result<(), StoreError> {
        if self.shutdown.is_frozen() {
            self.shutdown.ended(&exit.id);
            return Ok(());
        }
        self.tell_exit(exit);
        self.settle_exit(exit)
    }

    fn tell_exit(&mut self, exit: &ExitRecord) {
        if let Some(owner) = self.containers.get(&exit.id).cloned() {
            let event = self.exit_event(&owner, exit);
            self.cx.tell(&owner.uid, event);
        }
    }

    /// The exit is committed to the record before the monitor may forget it.
    fn settle_exit(&mut self, exit: &ExitRecord) -> Result<(), StoreError> {
        let Some(owner) = self.containers.get(&exit.id).cloned() else {
            self.exit_sync.exit_committed(&exit.id, self.cx.mono());
            return Ok(());
        };
        self.exit_sync.told(&owner.uid, &exit.id);
        self.settle(&owner.uid)?;
        self.streams.container_ended(&exit.id);
        Ok(())
    }

    fn exit_event(&self, owner: &ContainerRef, exit: &ExitRecord) -> PodEvent {
        let pod = self.cx.pods.get(&owner.uid).map(|entry| &*entry.pod);
        let failed = exit.code != 0;
        let message =
            pod.map(|pod| self.launch.containers.termination_message(pod, &owner.container, owner.attempt, failed));
        let message = message.unwrap_or_default();
        PodEvent::Exited {
            container: owner.container.clone(),
            id: exit.id.clone(),
            exit: Exit {
                code: exit.code,
                signal: exit.signal,
                oom_killed: exit.oom_killed,
                unknown: exit.unknown,
                finished_at: self.timestamp(&exit.finished_at),
                message,
            },
        }
    }

    /// After the start of this process or the death of the monitor: compares running containers with the records.
    fn resume(&mut self, containers: Vec<ContainerState>) -> Result<(), StoreError> {
        self.cx.resumed = true;
        let running = containers.iter().filter(|one| matches!(one.phase, Phase::Running { .. })).count();
        log::info!("the monitor has {} containers, {running} running", containers.len());
        let (_, own) = containers.into_iter().partition::<Vec<_>, _>(|container| self.is_stranger(container));
        let uids = self.cx.pods.uids(|_| true);
        self.match_with(own, uids)
    }

    /// Compares running containers with the records of these pods.
    pub(super) fn match_with(&mut self, containers: Vec<ContainerState>, uids: Vec<String>) -> Result<(), StoreError> {
        let mut live = std::collections::BTreeMap::new();
        // No pod may act on its news before it knows what runs: the next attempt that an exit makes it start is not
        // in the monitor's list, and would be taken for lost and started once more.
        let mut exits = Vec::new();
        for container in containers {
            match container.phase {
                Phase::Running { pid, started_at } => {
                    if self.containers.get(&container.id).is_some() {
                        // A start whose answer arrived while the daemon was not connected.
                        self.started(&container.id, pid, &started_at);
                        live.insert(container.id, pid);
                    } else {
                        log::warn!("container {} runs, but no pod here owns it: ending it", container.id);
                        self.containers.signal(&self.cx, &container.id, nix::sys::signal::Signal::SIGKILL as i32);
                    }
                }
                // Its result will be reported.
                Phase::Starting => drop(live.insert(container.id, 0)),
                Phase::Exited(exit) => {
                    self.tell_exit(&exit);
                    exits.push(exit);
                }
                Phase::Failed { message } => {
                    self.start_failed(&container.id, StartFailure::Run, &message);
                }
            }
        }
        for uid in uids {
            let Some(entry) = self.cx.pods.get(&uid) else { continue };
            let sandbox_exists = self.launch.sandboxes.exists(&entry.pod);
            let ids = entry.record.containers.values().filter_map(|container| container.state.live_id());
            // A container that no monitor knows counts as ended. It must not run beside its successor.
            let lost = ids.clone().filter(|id| !live.contains_key(*id));
            lost.for_each(|id| self.launch.sandboxes.teardown.kill_container(&entry.pod, &uid, id));
            let own = ids.filter_map(|id| Some((id.to_owned(), *live.get(id)?))).collect();
            self.cx.tell(&uid, PodEvent::Resumed { live: own, sandbox_exists });
            // Changes committed just before the last daemon died have not reached the pod's files yet.
            self.refresh_volumes(&uid);
        }
        for exit in exits {
            let known = self.containers.get(&exit.id).is_some();
            self.settle_exit(&exit)?;
            if !known {
                self.containers.delete(&self.cx, &exit.id, std::time::Duration::ZERO);
            }
        }
        Ok(())
    }

    fn timestamp(&self, text: &str) -> Timestamp {
        text.parse().unwrap_or_else(|_| self.cx.clock.now().wall)
    }
}

/// A path may be long, and a condition is shown in a line.
fn brief(reason: &str) -> String {
    reason.chars().map(|c| if c.is_control() { '?' } else { c }).take(512).collect()
}

#[cfg(test)]
mod tests;
