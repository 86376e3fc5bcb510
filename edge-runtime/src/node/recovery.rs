//! Pods about which the store may lack information, until it has recovered: a damaged store was filled from its
//! remains, or the row of a pod does not parse. Their containers continue, unmanaged, until a complete list of the
//! cloud (for a node without a cloud, its manifests) says which pods exist. Only then unknown ones are stopped, and
//! their remains are removed.

pub(super) mod state;

use k8s_openapi::api::core::v1::Pod;

use super::Node;
use super::pods::Entry;
use crate::intake;
use crate::pod::id::container_id;
use crate::pod::record::{ContainerRecord, PodRecord};
use crate::pod::spec::with_kinds;
use crate::store::{Fact, StoreError};
use sampan_monitor::protocol::{ContainerState, Phase};

/// Number of attempts to search for a running unmanaged container. Its number was on the damaged page.
const ATTEMPTS: u32 = 1024;

impl Node {
    /// Begins recovery at the start, when all pods in the store are known.
    pub(super) fn begin_recovery(&mut self) -> Result<(), StoreError> {
        if !self.cx.recovery.is_under_way() {
            self.sweep_kernel();
            return Ok(());
        }
        log::warn!("the store may not know every pod: nothing that runs is ended before the cloud has sent its list");
        for (uid, why) in self.cx.recovery.kept.clone() {
            let text = format!("pod {uid} is kept as it is until the cloud has sent its list: {why}");
            log::error!("{text}");
            self.cx.node_event(true, "PodRecordDamaged", &text)?;
        }
        // The next connection lists instead of resuming.
        self.cx.store.write(|writer| {
            writer.clear_fact(Fact::Stream)?;
            writer.clear_fact(Fact::LastSequence)
        })
    }

    /// A container that the monitor has and no pod here owns, while the store may not know all.
    pub(super) fn is_stranger(&mut self, container: &ContainerState) -> bool {
        if !self.cx.recovery.is_under_way() || self.containers.get(&container.id).is_some() {
            return false;
        }
        if let Phase::Running { .. } = container.phase {
            log::warn!("container {} runs, but no pod here is known to own it: it is left alone for now", container.id);
        }
        self.cx.recovery.strangers.insert(container.id.clone(), container.clone());
        true
    }

    /// Returns the record of a pod whose object could not be read, now that the object has arrived.
    pub(super) fn lost_and_found(&self, uid: &str) -> Result<Option<PodRecord>, StoreError> {
        if !self.cx.recovery.kept.contains_key(uid) {
            return Ok(None);
        }
        self.cx.store.pod_record(uid)
    }

    /// Takes up a pod again with what runs of it.
    pub(super) fn adopt(&mut self, entry: Entry) -> Result<(), StoreError> {
        let uid = entry.record.uid.clone();
        self.containers.insert_all(&entry.record);
        self.cx.pods.insert(entry);
        self.cx.recovery.kept.remove(&uid);
        if !self.cx.resumed {
            return Ok(());
        }
        let own = |id: &String| self.containers.get(id).is_some_and(|of| of.uid == uid);
        let ids: Vec<String> = self.cx.recovery.strangers.keys().filter(|id| own(id)).cloned().collect();
        let containers = ids.iter().filter_map(|id| self.cx.recovery.strangers.remove(id)).collect();
        self.match_with(containers, vec![uid])
    }

    /// Whether a process runs for a static pod that the store has lost: it continues, and no second one is started.
    pub(super) fn runs_unattended(&self, uid: &str) -> bool {
        self.cx.recovery.is_under_way() && self.cx.link.is_some() && self.launch.sandboxes.teardown.has_cgroup_of(uid)
    }

    /// Prepares the start of a pod without a record. Its running containers end first. Its new containers begin with an
    /// attempt whose id the monitor does not know: a known id is refused, and would be deleted like an unknown
    /// container.
    pub(super) fn end_unattended(&mut self, pod: &Pod, record: &mut PodRecord) {
        if self.cx.recovery.is_under_way() {
            self.launch.sandboxes.teardown.kill_unknown(&record.uid);
        }
        for (container, kind) in pod.spec.iter().flat_map(with_kinds) {
            let known = |attempt: &u32| {
                self.cx.recovery.strangers.contains_key(&container_id(&record.uid, &container.name, *attempt))
            };
            let Some(last) = (0..ATTEMPTS).rev().find(known) else { continue };
            let mut container_record = ContainerRecord::new(kind);
            container_record.attempt = last + 1;
            record.containers.insert(container.name.clone(), container_record);
        }
    }

    /// A complete list has been committed: what is not known now is not wanted.
    pub(super) fn listed(&mut self) -> Result<(), StoreError> {
        let over = std::mem::take(&mut self.cx.recovery);
        if over.is_under_way() {
            self.cx.recovery.strangers.clone_from(&over.strangers);
            log::info!("the list is complete: what it does not have ends now");
            // Those that are in no list have no object, and their rows tell nothing.
            let unreadable: Vec<&String> = over.kept.keys().filter(|uid| !self.cx.pods.contains(uid)).collect();
            self.cx.store.write(|writer| {
                unreadable.iter().try_for_each(|uid| writer.forget_pod(uid))?;
                writer.clear_fact(Fact::Incomplete)
            })?;
            for uid in unreadable {
                self.launch.sandboxes.teardown.kill_unknown(uid);
            }
            for id in over.strangers.keys().filter(|id| self.containers.get(id).is_none()) {
                self.containers.signal(&self.cx, id, nix::sys::signal::Signal::SIGKILL as i32);
                self.containers.delete(&self.cx, id, std::time::Duration::ZERO);
            }
            for (pod, refusal) in intake::restore(&self.cx.store)?.wanted {
                if pod.metadata.uid.as_ref().is_some_and(|uid| !self.cx.pods.contains(uid)) {
                    self.pod_wanted(pod, refusal)?;
                }
            }
            self.scan_manifests()?;
            self.cx.recovery.strangers.clear();
            self.cx.look_now();
        }
        self.sweep_kernel();
        self.forget_allocations();
        self.sweep_folders();
        self.resync.soon(&self.cx);
        Ok(())
    }

    fn sweep_kernel(&mut self) {
        let known = self.cx.pods.iter().map(|(uid, _)| uid.clone()).collect();
        if let Err(error) = self.launch.sandboxes.teardown.sweep(&known) {
            log::warn!("leftovers of an earlier run stay: {error}");
        }
    }

    /// Removes folders and logs of unknown pods: the daemon died between a pod's end and its last step. They would
    /// count as disk use and cause evictions. A folder stays as long as its pod has processes.
    fn sweep_folders(&mut self) {
        let logs = crate::logs::own(&self.cx.paths);
        for entry in std::fs::read_dir(self.cx.paths.pods()).into_iter().flatten().flatten() {
            let uid = entry.file_name().to_string_lossy().into_owned();
            if self.cx.pods.contains(&uid) || self.launch.sandboxes.teardown.has_cgroup_of(&uid) {
                continue;
            }
            // The folder goes last: it shows that the logs are this node's.
            let logs = logs.iter().filter(|(of, _)| *of == uid).map(|(_, folder)| folder.clone());
            for path in logs.chain([entry.path()]) {
                log::info!("{} is of no pod that is known: it is deleted", path.display());
                if let Err(error) = self.launch.base.trash.throw(&path) {
                    log::warn!("{error}");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
