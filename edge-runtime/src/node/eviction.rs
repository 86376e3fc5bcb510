//! Guards the node against running short: looks with every node report, frees what nobody needs, ends pods that must
//! go, one at a time. Decisions are in [`crate::eviction`].

use std::time::Duration;

use super::Node;
use super::pods::Entry;
use crate::eviction::admit::REASON;
use crate::eviction::rank::{Candidate, Usage, rank};
use crate::eviction::walk::Answers;
use crate::eviction::{Manager, Observations, Signal, Threshold, measure, message};
use crate::node_status::Pressure;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;
use crate::pod::record::{NodeEnd, PodSource, SandboxState};
use crate::pod::spec::is_critical;
use crate::store::StoreError;

/// What an evicted container gets (the kubelet's `immediateEvictionGracePeriodSeconds`).
const GRACE_S: u32 = 1;
/// The next pod goes when the last one is gone, or after this (the kubelet's `podCleanupTimeout`).
const CLEANUP: Duration = Duration::from_secs(30);
/// A shortage that lasts is told again after this.
const TELL_AGAIN: Duration = Duration::from_secs(300);
/// While a pod goes, and while the disk is being looked at.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// What the node knows of its own shortages.
pub(super) struct Eviction {
    manager: Manager,
    pub(super) pressure: Pressure,
    seen: Observations,
    met: Vec<Threshold>,
    /// Evicted, and not gone until then.
    leaving: Option<(String, Mono)>,
    separate_images: bool,
    /// The shortage that was told as an event, and when.
    told: Option<(Signal, Mono)>,
    /// The shortage for which no pod could be ended, once that is in the log.
    stuck: Option<Signal>,
}

impl Eviction {
    pub(super) fn new(manager: Manager, separate_images: bool) -> Self {
        let (pressure, seen) = Default::default();
        Self { manager, pressure, seen, met: Vec::new(), leaving: None, separate_images, told: None, stuck: None }
    }
}

impl Node {
    /// One look, and what follows from it.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) fn guard(&mut self, now: Mono) -> Result<(), StoreError> {
        self.look(now);
        self.mend_cgroups();
        self.collect_images_by_mark(now)?;
        self.walk_limited_pods(now);
        if !self.resumed || self.is_one_leaving(now) {
            return Ok(());
        }
        let Some(first) = self.eviction.met.first().copied() else {
            (self.eviction.told, self.eviction.stuck) = (None, None);
            return Ok(());
        };
        // Not with every look: the node has other news, too, and only so many events.
        let again = |(signal, at): (Signal, Mono)| signal != first.signal || now.since(at) > TELL_AGAIN;
        if self.eviction.told.is_none_or(again) {
            self.eviction.told = Some((first.signal, now));
            let message = format!("Attempting to reclaim {}", first.signal.resource());
            self.node_event(true, "EvictionThresholdMet", &message)?;
        }
        match first.signal {
            Signal::MemoryAvailable | Signal::PidAvailable => self.evict_for(first, None, now),
            // Images first; when none is left to remove, a walk tells who holds how much, and `walked` goes on.
            _ if self.collect_all_images(now)? => Ok(()),
            _ => {
                self.walk_all_pods();
                Ok(())
            }
        }
    }

    /// Also before the first pod is admitted.
    pub(super) fn look(&mut self, now: Mono) {
        self.eviction.seen = measure::observe(&self.paths, self.launcher.facts().memory_bytes);
        let verdict = self.eviction.manager.look(&self.eviction.seen, now);
        if verdict.pressure != self.eviction.pressure {
            log::info!("pressure: {:?} after {:?}", verdict.pressure, self.eviction.pressure);
        }
        (self.eviction.pressure, self.eviction.met) = (verdict.pressure, verdict.met);
    }

    pub(super) fn observations(&self) -> &Observations {
        &self.eviction.seen
    }

    /// Whether a threshold of a disk is met now; the condition lasts longer.
    pub(super) fn is_short_of_disk(&self) -> bool {
        self.eviction.met.iter().any(|met| !matches!(met.signal, Signal::MemoryAvailable | Signal::PidAvailable))
    }

    pub(super) fn separate_images(&self) -> bool {
        self.eviction.separate_images
    }

    /// Looks come quicker while a pod leaves.
    pub(super) fn is_one_leaving(&mut self, now: Mono) -> bool {
        let Some((uid, until)) = &self.eviction.leaving else { return false };
        let gone = self.pods.get(uid).is_none_or(|entry| entry.record.sandbox.state == SandboxState::Gone);
        if gone || *until <= now {
            self.eviction.leaving = None;
        }
        self.eviction.leaving.is_some()
    }

    /// Ends the pod that costs least and helps most.
    fn evict_for(&mut self, threshold: Threshold, disk: Option<&Answers>, now: Mono) -> Result<(), StoreError> {
        let signal = threshold.signal;
        let mut candidates: Vec<Candidate<'_>> = self
            .pods
            .iter()
            .filter(|(_, entry)| may_go(entry))
            .map(|(uid, entry)| Candidate { uid, pod: &entry.pod, usage: self.usage(uid, entry, signal, disk) })
            .collect();
        rank(&mut candidates, signal);
        let Some(first) = candidates.first() else {
            if self.eviction.stuck.replace(signal) != Some(signal) {
                log::warn!("the node is short of {}, and no pod can be evicted", signal.resource());
            }
            return Ok(());
        };
        let text = message::node_low(signal, &self.eviction.met, &self.eviction.seen, first.pod, &first.usage);
        let uid = first.uid.to_owned();
        self.eviction.stuck = None;
        self.evict(&uid, text, true, now);
        Ok(())
    }

    /// The walk that an eviction waited for has ended.
    pub(super) fn evict_for_disk(&mut self, answers: &Answers, now: Mono) -> Result<(), StoreError> {
        self.look(now);
        let first = self.eviction.met.first().copied();
        match first.filter(|first| !matches!(first.signal, Signal::MemoryAvailable | Signal::PidAvailable)) {
            Some(first) if !self.is_one_leaving(now) => self.evict_for(first, Some(answers), now),
            _ => Ok(()),
        }
    }

    pub(super) fn evict(&mut self, uid: &str, message: String, disruption: bool, now: Mono) {
        if let Some(entry) = self.pods.get(uid) {
            log::warn!("evicting pod {}/{}: {message}", entry.record.namespace, entry.record.name);
        }
        self.eviction.leaving = Some((uid.to_owned(), now.after(CLEANUP)));
        let end = NodeEnd { grace_s: GRACE_S, disruption };
        self.tell(uid, PodEvent::Evict { reason: REASON.to_owned(), message, end });
        self.node_status.look_again(now.after(AGAIN));
    }

    fn usage(&self, uid: &str, entry: &Entry, signal: Signal, disk: Option<&Answers>) -> Usage {
        let live = || {
            let containers = entry.record.containers.iter();
            containers.filter_map(|(name, container)| Some((name.clone(), container.state.live_id()?)))
        };
        match signal {
            Signal::MemoryAvailable => {
                let of =
                    |(name, id): (String, &str)| Some((name, self.launcher.container_memory(&entry.pod, uid, id)?));
                Usage { total: self.launcher.pod_memory(&entry.pod, uid), containers: live().filter_map(of).collect() }
            }
            Signal::PidAvailable => {
                let counts = live().map(|(_, id)| self.launcher.container_processes(&entry.pod, uid, id));
                Usage { total: counts.sum(), containers: Vec::new() }
            }
            Signal::NodeFsAvailable | Signal::ImageFsAvailable => {
                let used = disk.and_then(|disk| disk.get(uid));
                let containers = used.map(crate::eviction::limits::DiskUsage::containers).unwrap_or_default();
                Usage { total: used.map(crate::eviction::limits::DiskUsage::total), containers }
            }
            Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => {
                let used = disk.and_then(|disk| disk.get(uid));
                Usage { total: used.map(|used| used.inodes), containers: Vec::new() }
            }
        }
    }
}

/// Has not ended, is not on its way out, and is not vital.
pub(super) fn may_go(entry: &Entry) -> bool {
    entry.record.terminal.is_none()
        && entry.record.deletion.is_none()
        && !is_critical(&entry.pod, entry.record.source == PodSource::Static)
}
