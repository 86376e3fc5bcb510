//! What is looked at every ten seconds (the kubelet's node status period), and in which order: what waits is told or
//! dropped, the host is measured, what it is short of is freed, and the Node object follows.

use std::time::Duration;

use jiff::Timestamp;

use super::Node;
use super::context::Context;
use super::ephemeral_storage::{Purpose, beyond_limits};
use super::eviction::{AGAIN, is_of_disk};
use super::node_status::Host;
use crate::eviction::walk::Answers;
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::store::{Fact, StoreError};
use crate::sys::reserve::Reserve;
use crate::sys::{descriptors, host};

const PERIOD: Duration = Duration::from_secs(10);

/// The clock mark: how far a clock that lost its battery may fall back.
const TIME_MARK: Duration = Duration::from_secs(3600);

/// What it remembers from one time to the next.
#[derive(Default)]
pub(super) struct Housekeeping {
    time_mark: Option<Mono>,
    /// What the bridge said last, and when.
    true_time: Option<(Timestamp, Mono)>,
    short_of_descriptors: bool,
}

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
        maintain(&self.reserve, &self.cx.paths);
        self.follow_addresses();
        self.resync.tell_due(&mut self.cx.pods, now);
        self.backup.copy_store(&self.cx, self.doubt.any(), now);
        self.housekeeping.watch_descriptors(&mut self.cx)?;
        self.backup.return_to_disk(&mut self.cx, now)?;
        if !self.shutdown.is_under_way() {
            self.make_room(now)?;
            self.pulls.prepull(&self.cx, now);
            if self.static_pods.is_due(now) {
                self.scan_manifests()?;
            }
        }
        self.housekeeping.mark_time(&mut self.cx, now)?;
        let host = Host {
            launch: &self.launch,
            pressure: self.eviction.pressure,
            shutting_down: self.shutdown.is_under_way(),
        };
        self.node_status.report(&mut self.cx, &host, now)
    }

    /// As often as the kubelet (K8s pkg/kubelet/nodestatus, `NodeAddress`): DHCP and roaming change them.
    fn follow_addresses(&mut self) {
        if !self.launch.sandboxes.look_at_addresses() {
            return;
        }
        self.cx.host.host_ips = self.launch.sandboxes.host_ips().to_vec();
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

    /// One look, and what follows from it: frees what nobody needs, then ends pods.
    fn make_room(&mut self, now: Mono) -> Result<(), StoreError> {
        self.observe(now);
        self.mend_cgroups();
        let in_doubt = self.doubt.any();
        self.image_gc.by_mark(&mut self.cx, self.eviction.observations(), in_doubt, now)?;
        self.ephemeral_storage.walk_limited_pods(&self.cx, now);
        if !self.cx.resumed || self.eviction.is_one_leaving(&self.cx.pods, now) {
            return Ok(());
        }
        let Some(first) = self.eviction.tell_first(&mut self.cx, now)? else { return Ok(()) };
        if !is_of_disk(first) {
            self.eviction.evict_for(&mut self.cx, &self.launch.base.cgroups, first, None, now);
        } else if !self.image_gc.all(&mut self.cx, &mut self.pulls, in_doubt, now)? {
            // No image is left to remove: a walk tells who holds how much, and `walked` goes on.
            self.ephemeral_storage.walk_all_pods(&self.cx);
        }
        Ok(())
    }

    /// The helper has measured pods' disk use.
    pub(super) fn walked(&mut self, result: Result<Answers, String>) {
        let Some((purpose, answers)) = self.ephemeral_storage.walked(&self.cx, result) else { return };
        let now = self.cx.mono();
        for (uid, message) in beyond_limits(&self.cx.pods, &answers, self.eviction.separate_images()) {
            // Its own doing, so not a disruption.
            self.eviction.evict(&mut self.cx, &uid, message, false, now);
        }
        if purpose == Purpose::Limits {
            return;
        }
        self.observe(now);
        if let Some(first) = self.eviction.first().filter(|first| is_of_disk(*first))
            && !self.eviction.is_one_leaving(&self.cx.pods, now)
        {
            self.eviction.evict_for(&mut self.cx, &self.launch.base.cgroups, first, Some(&answers), now);
        }
        self.cx.look_again(now.after(AGAIN));
    }
}

impl Housekeeping {
    /// The bridge has said what time it is; one that does not say has at least a certificate that is good by our clock.
    pub(super) fn time_told(&mut self, cx: &Context, now_ms: Option<u64>) {
        let told = now_ms.and_then(|ms| i64::try_from(ms).ok()).and_then(|ms| Timestamp::from_millisecond(ms).ok());
        self.true_time = Some((told.unwrap_or_else(|| cx.wall()), cx.mono()));
    }

    /// Remembers the time every now and then, as the bridge has told it and a timer has counted it on. What the own clock
    /// says counts for nothing: ten years ahead at boot, it would make every certificate look expired from then on.
    fn mark_time(&mut self, cx: &mut Context, now: Mono) -> Result<(), StoreError> {
        let Some((told, at)) = self.true_time else { return Ok(()) };
        if self.time_mark.is_some_and(|due| now < due) {
            return Ok(());
        }
        let time = told.checked_add(now.since(at)).unwrap_or(told).to_string();
        cx.store.write(|writer| writer.set_fact(Fact::TimeFloor, &time))?;
        self.time_mark = Some(now.after(TIME_MARK));
        Ok(())
    }

    /// Told once until there are enough again.
    fn watch_descriptors(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        let Some((open, limit)) = descriptors::used() else { return Ok(()) };
        let short = descriptors::are_short((open, limit));
        if short && !self.short_of_descriptors {
            let text = format!("{open} of {limit} file descriptors are open: raise the limit (LimitNOFILE)");
            log::error!("{text}");
            cx.node_event(true, "FileDescriptorsShort", &text)?;
        }
        self.short_of_descriptors = short;
        Ok(())
    }
}

/// Keeps or gives up the room for the node itself.
pub(super) fn maintain(reserve: &Reserve, paths: &Paths) {
    let Some(space) = host::disk_space(&paths.state()) else { return };
    if let Err(error) = reserve.tend(space.available_bytes, space.total_bytes) {
        log::error!("{}: {error}", paths.reserve().display());
    }
}
