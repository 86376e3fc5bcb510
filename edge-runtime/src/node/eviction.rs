//! The eviction manager: what the node is short of, and the pods that must go for it, one at a time. Decisions are in
//! [`crate::eviction`].

use std::time::Duration;

use super::context::Context;
use super::pods::{Entry, Pods};
use crate::eviction::admit::REASON;
use crate::eviction::limits::DiskUsage;
use crate::eviction::rank::{Candidate, Usage, rank};
use crate::eviction::walk::Answers;
use crate::eviction::{Manager, Observations, Signal, Threshold, measure, message};
use crate::launch::cgroups::{cgroup_of_container, cgroup_of_pod};
use crate::node_status::Pressure;
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;
use crate::pod::record::{NodeEnd, PodSource, SandboxState};
use crate::pod::spec::is_critical;
use crate::store::StoreError;
use crate::sys::cgroup::Cgroups;

/// Grace period of an evicted container (the kubelet's `immediateEvictionGracePeriodSeconds`).
const GRACE_S: u32 = 1;
/// The next pod goes when the last one is gone, or after this (the kubelet's `podCleanupTimeout`).
const CLEANUP: Duration = Duration::from_secs(30);
/// A lasting shortage is reported again after this time.
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
    /// The shortage of the last event, and its time.
    told: Option<(Signal, Mono)>,
    /// The shortage for which no pod could be ended, once that is in the log.
    stuck: Option<Signal>,
}

impl Eviction {
    pub(super) fn new(manager: Manager, separate_images: bool) -> Self {
        let (pressure, seen, met) = (Pressure::default(), Observations::default(), Vec::new());
        Self { manager, pressure, seen, met, leaving: None, separate_images, told: None, stuck: None }
    }

    /// Looks how much there is left. Also before the first pod is admitted.
    pub(super) fn observe(&mut self, paths: &Paths, memory_bytes: u64, now: Mono) {
        self.seen = measure::observe(paths, memory_bytes);
        let verdict = self.manager.look(&self.seen, now);
        if verdict.pressure != self.pressure {
            log::info!("pressure: {:?} after {:?}", verdict.pressure, self.pressure);
        }
        (self.pressure, self.met) = (verdict.pressure, verdict.met);
    }

    /// What the node is short of, first of all.
    pub(super) fn first(&self) -> Option<Signal> {
        self.met.first().map(|met| met.signal)
    }

    /// The first signal; also emits an event about it now and then.
    pub(super) fn tell_first(&mut self, cx: &mut Context, now: Mono) -> Result<Option<Signal>, StoreError> {
        let Some(first) = self.first() else {
            (self.told, self.stuck) = (None, None);
            return Ok(None);
        };
        if is_news(self.told, first, now) {
            self.told = Some((first, now));
            cx.node_event(true, "EvictionThresholdMet", &format!("Attempting to reclaim {}", first.resource()))?;
        }
        Ok(Some(first))
    }

    pub(super) fn observations(&self) -> &Observations {
        &self.seen
    }

    /// Whether a threshold of a disk is met now; the condition lasts longer.
    pub(super) fn is_short_of_disk(&self) -> bool {
        self.met.iter().any(|met| met.signal.is_of_disk())
    }

    pub(super) fn separate_images(&self) -> bool {
        self.separate_images
    }

    /// Whether an evicted pod is on its way out. It is not waited for beyond [`CLEANUP`].
    pub(super) fn is_one_leaving(&self, pods: &Pods, now: Mono) -> bool {
        self.leaving.as_ref().is_some_and(|(uid, until)| {
            now < *until && pods.get(uid).is_some_and(|entry| entry.record.sandbox.state != SandboxState::Gone)
        })
    }

    /// Ends the pod that costs least and helps most. `disk` is what a walk has measured, for a shortage of disk.
    pub(super) fn evict_for(&mut self, cx: &mut Context, cgroups: &Cgroups, signal: Signal, disk: Option<&Answers>) {
        let candidates = cx.pods.iter().filter(|(_, entry)| may_go(entry));
        let usage = |uid, entry| usage(cgroups, uid, entry, signal, disk);
        let mut candidates: Vec<Candidate<'_>> =
            candidates.map(|(uid, entry)| Candidate { uid, pod: &entry.pod, usage: usage(uid, entry) }).collect();
        rank(&mut candidates, signal);
        let Some(first) = candidates.first() else {
            if self.stuck.replace(signal) != Some(signal) {
                log::warn!("the node is short of {}, and no pod can be evicted", signal.resource());
            }
            return;
        };
        let text = message::node_low(signal, &self.met, &self.seen, first.pod, &first.usage);
        let uid = first.uid.to_owned();
        self.stuck = None;
        self.evict(cx, &uid, text, true);
    }

    pub(super) fn evict(&mut self, cx: &mut Context, uid: &str, message: String, disruption: bool) {
        let now = cx.mono();
        if let Some(entry) = cx.pods.get(uid) {
            log::warn!("evicting pod {}/{}: {message}", entry.record.namespace, entry.record.name);
        }
        self.leaving = Some((uid.to_owned(), now.after(CLEANUP)));
        let end = NodeEnd { grace_s: GRACE_S, disruption };
        cx.tell(uid, PodEvent::Evict { reason: REASON.to_owned(), message, end });
        cx.look_again(now.after(AGAIN));
    }
}

fn usage(cgroups: &Cgroups, uid: &str, entry: &Entry, signal: Signal, disk: Option<&Answers>) -> Usage {
    let live = || {
        let containers = entry.record.containers.iter();
        let live = containers.filter_map(|(name, container)| Some((name, container.state.live_id()?)));
        live.map(|(name, id)| (name.clone(), cgroup_of_container(cgroups, &entry.pod, uid, id)))
    };
    let on_disk = disk.and_then(|disk| disk.get(uid));
    match signal {
        Signal::MemoryAvailable => Usage {
            total: cgroups.working_set(&cgroup_of_pod(cgroups, &entry.pod, uid)),
            containers: live().filter_map(|(name, path)| Some((name, cgroups.working_set(&path)?))).collect(),
        },
        Signal::PidAvailable => {
            Usage { total: live().map(|(_, path)| cgroups.processes(&path)).sum(), containers: Vec::new() }
        }
        Signal::NodeFsAvailable | Signal::ImageFsAvailable => Usage {
            total: on_disk.map(|used| held(used, used.total().bytes)),
            containers: on_disk.map(DiskUsage::containers).unwrap_or_default(),
        },
        Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => {
            Usage { total: on_disk.map(|used| held(used, used.total().inodes)), containers: Vec::new() }
        }
    }
}

/// Whether to report this shortage after the last report. Not each time: the number of events is limited, and the node
/// has others.
fn is_news(told: Option<(Signal, Mono)>, first: Signal, now: Mono) -> bool {
    told.is_none_or(|(signal, at)| signal != first || now.since(at) > TELL_AGAIN)
}

/// A pod whose files could not all be counted holds the most.
fn held(used: &DiskUsage, counted: u64) -> u64 {
    if used.beyond.is_some() { u64::MAX } else { counted }
}

/// Has not ended, is not on its way out, and is not vital. A pod whose stop is held is not on its way yet.
pub(super) fn may_go(entry: &Entry) -> bool {
    entry.record.terminal.is_none()
        && (entry.record.deletion.is_none() || entry.record.stop_hold.is_some())
        && !is_critical(&entry.pod, entry.record.source == PodSource::Static)
}

#[cfg(test)]
mod tests;
