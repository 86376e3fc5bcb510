//! Periodic work every ten seconds (the kubelet's node status period), in this order: waiting reports are sent or
//! dropped, the host is measured, scarce resources are freed, and the Node object is updated.

use std::time::Duration;

use super::Node;
use super::ephemeral_storage::{Purpose, beyond_limits};
use super::eviction::AGAIN;
use super::host_watch::maintain;
use super::node_status::Host;
use super::pods::Entry;
use crate::eviction::walk::Answers;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;
use crate::pod::record::StartHold;
use crate::store::StoreError;

const PERIOD: Duration = Duration::from_secs(10);

impl Node {
    /// Does what is due.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) fn housekeeping(&mut self) -> Result<(), StoreError> {
        let now = self.cx.mono();
        if self.cx.look_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.cx.look_at = Some(now.after(PERIOD));
        self.cx.expire_events(now)?;
        self.release_marked();
        self.devices.store_again(&mut self.cx)?;
        maintain(&self.reserve, &self.cx.paths);
        self.follow_addresses();
        self.follow_neighbours()?;
        self.look_at_rules()?;
        self.services.keep_routes(&self.launch);
        self.look_at_cpus()?;
        self.resync.tell_due(&mut self.cx.pods, now);
        self.backup.copy_store(&self.cx, now);
        self.host_watch.watch_descriptors(&mut self.cx)?;
        self.backup.return_to_disk(&mut self.cx, now)?;
        if !self.shutdown.is_under_way() {
            self.make_room(now)?;
            self.pulls.prepull(&self.cx, now);
            if self.static_pods.is_due(now) {
                self.scan_manifests()?;
            }
        }
        self.host_watch.mark_time(&mut self.cx, now)?;
        let host = Host {
            launch: &self.launch,
            pressure: self.eviction.pressure,
            shutting_down: self.shutdown.is_under_way(),
            services_elsewhere: self.services.elsewhere(),
            volumes_in_use: self.cx.config.plugins.csi.then(|| self.plugins.volumes.kept.in_use()),
        };
        self.node_status.report(&mut self.cx, &host, now)
    }

    /// Releases held pods for which the verb `release` has left its mark. The mark goes with the pod's folder: a power cut
    /// does not undo it.
    fn release_marked(&mut self) {
        let paths = &self.cx.paths;
        let is_released =
            |entry: &Entry| entry.record.start_hold == StartHold::Held && paths.released(&entry.record.uid).exists();
        for uid in self.cx.pods.uids(is_released) {
            self.cx.tell(&uid, PodEvent::Released);
        }
    }

    /// Updates the node's addresses, as often as the kubelet (K8s pkg/kubelet/nodestatus, `NodeAddress`): DHCP and
    /// roaming change them.
    fn follow_addresses(&mut self) {
        if !self.launch.sandboxes.look_at_addresses() {
            return;
        }
        self.cx.host.host_ips = self.launch.sandboxes.host_ips.clone();
        self.services.set_addresses(&self.cx.host.host_ips);
        // Each shows them in its status.
        for uid in self.cx.pods.uids(|_| true) {
            self.cx.pods.touch(&uid);
        }
    }

    /// Measures what the node has left, also before the first pod is admitted.
    pub(super) fn observe(&mut self, now: Mono) {
        self.eviction.observe(&self.cx.paths, self.launch.host.memory_bytes, now);
        self.pulls.short_of_disk = self.eviction.is_short_of_disk();
    }

    /// Observes the host and acts on it: frees unused space, then evicts pods.
    fn make_room(&mut self, now: Mono) -> Result<(), StoreError> {
        self.observe(now);
        self.mend_cgroups();
        self.image_gc.by_mark(&mut self.cx, self.eviction.observations(), now)?;
        self.ephemeral_storage.walk_limited_pods(&self.cx, now);
        if !self.cx.resumed || self.eviction.is_one_leaving(&self.cx.pods, now) {
            return Ok(());
        }
        let Some(first) = self.eviction.tell_first(&mut self.cx, now)? else { return Ok(()) };
        if !first.is_of_disk() {
            self.eviction.evict_for(&mut self.cx, &self.launch.base.cgroups, first, None);
        } else if !self.image_gc.all(&mut self.cx, &mut self.pulls, now)? {
            // No image is left to remove. A walk measures the usage of pods, and `walked` continues.
            self.ephemeral_storage.walk_all_pods(&self.cx);
        }
        Ok(())
    }

    /// The helper has measured pods' disk use.
    pub(super) fn walked(&mut self, number: u64, answers: &Answers) {
        let now = self.cx.mono();
        let Some(purpose) = self.ephemeral_storage.walked(number, answers, now) else { return };
        for (uid, message) in beyond_limits(&self.cx.pods, answers, self.eviction.separate_images()) {
            // Its own doing, so not a disruption.
            self.eviction.evict(&mut self.cx, &uid, message, false);
        }
        if purpose == Purpose::Limits {
            return;
        }
        self.observe(now);
        if let Some(first) = self.eviction.first().filter(|first| first.is_of_disk())
            && !self.eviction.is_one_leaving(&self.cx.pods, now)
        {
            self.eviction.evict_for(&mut self.cx, &self.launch.base.cgroups, first, Some(answers));
        }
        // A walk that has found out nothing is not repeated at once.
        if !answers.is_empty() {
            self.cx.look_again(now.after(AGAIN));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::node::bench::Bench;
    use crate::pod::record::StartHold;

    #[test]
    fn mark_releases_the_held_pod_it_is_for() {
        let mut bench = Bench::new();
        for uid in ["held", "other", "free"] {
            bench.add(uid);
            let hold = if uid == "free" { StartHold::Open } else { StartHold::Held };
            bench.record_mut(uid).start_hold = hold;
        }
        bench.take_dirty();
        for uid in ["held", "free"] {
            let mark = bench.node.cx.paths.released(uid);
            std::fs::create_dir_all(mark.parent().unwrap()).unwrap();
            std::fs::write(mark, "").unwrap();
        }
        bench.node.release_marked();
        assert_eq!(bench.take_dirty(), ["held"]);
        let holds = ["held", "other", "free"].map(|uid| bench.record(uid).start_hold);
        assert_eq!(holds, [StartHold::Released, StartHold::Held, StartHold::Open]);
        bench.node.forget("held");
        assert!(!bench.node.cx.paths.pod("held").exists(), "the mark goes with the pod");
    }
}
