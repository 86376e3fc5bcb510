//! What a container or pod gets of resources of device plugins. Decides alone.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::{Plugins, Resource};
use crate::launch::devices::shortage::Shortage;
use crate::pod::clock::Mono;
use crate::pod::extended_resources;
use crate::pod::record::PodRecord;
use crate::pod::spec::{containers_of, uid};

/// After a boot plugins may be slow to start: for this long no pod is refused for a device that is missing.
const BOOT: Duration = Duration::from_secs(300);

/// What a container does next about one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It has what it needs.
    Ready,
    /// No plugin has ever had the resource: as in Kubernetes, the container starts without it.
    Without,
    /// Tell the plugin that it starts with these devices.
    PreStart(Vec<String>),
    /// Have the plugin allocate: devices that must be among them, and others that are free.
    Allocate { had: Vec<String>, free: Vec<String> },
    /// Try again when a plugin has news.
    Wait(Shortage),
    /// It cannot be.
    Never(String),
}

/// A pod that has been admitted and has not ended.
pub type Admitted<'a> = (&'a Pod, &'a PodRecord);

impl Plugins {
    /// What `container` of the pod, of which no process runs, does next about `count` devices of a resource. `others`: all
    /// pods, for containers that have devices of which no file tells.
    ///
    /// A container that has devices keeps them, also while its plugin is away. Only where the plugin was not seen since this
    /// daemon started, or wants to know of starts, the container waits for it: after a boot a plugin may have to prepare
    /// devices first. A device that its plugin lists no more is replaced: its name may be another one since a boot. The
    /// kubelet fails the pod, whose controller makes another one with other devices (K8s manager.go, `devicesToAllocate`:
    /// "previously allocated devices are no longer healthy").
    pub fn next(
        &self,
        (pod, container): (&Pod, &str),
        (resource, count): (&str, usize),
        others: &[Admitted<'_>],
        now: Mono,
    ) -> Next {
        let kept = self.kept.get(uid(pod), container, resource).filter(|kept| !kept.ids.is_empty());
        let entry = self.resources.get(resource);
        let Some(known) = entry.filter(|entry| entry.seen) else {
            let waits = kept.is_some() || entry.is_some() || !self.told || is_early(now);
            return if waits { Next::Wait(Shortage::Unregistered) } else { Next::Without };
        };
        let mut had = Vec::new();
        if let Some(kept) = kept {
            if kept.ids.len() != count {
                let had = kept.ids.len();
                let container = format!("container {container:?} changed request for resource {resource:?}");
                return Next::Never(format!("{container} from {had} to {count}"));
            }
            if known.gone.is_some() {
                return if kept.pre_start { Next::Wait(Shortage::NoneHealthy) } else { Next::Ready };
            }
            for id in &kept.ids {
                match known.health(id) {
                    Some(true) => had.push(id.clone()),
                    Some(false) => return Next::Wait(Shortage::OwnUnhealthy),
                    None => {}
                }
            }
            if had.len() == count {
                return if kept.pre_start { Next::PreStart(had) } else { Next::Ready };
            }
        }
        if let Some(shortage) = missing(known, now) {
            return Next::Wait(shortage);
        }
        for id in self.kept.lent(pod, container, resource) {
            if known.is_healthy(&id) && !had.contains(&id) {
                had.push(id);
            }
        }
        had.truncate(count);
        let held = self.kept.held(resource, &|_| true);
        let mut free: Vec<String> = known.healthy().filter(|id| !held.contains(id.as_str())).cloned().collect();
        if self.has_unknown_holder(resource, others) {
            free.clear();
        }
        let available = had.len().saturating_add(free.len());
        if available >= count {
            return Next::Allocate { had, free };
        }
        Next::Wait(match kept {
            Some(_) => Shortage::OwnUnhealthy,
            None => Shortage::TooFew { requested: count, available },
        })
    }

    /// Why the pod cannot be admitted beside `others`, of which `keeps` tells by their uids whether they keep what they
    /// have, and whether to wait for it as plugins may be about to start.
    pub fn refusal(
        &self,
        pod: &Pod,
        others: &[Admitted<'_>],
        keeps: &dyn Fn(&str) -> bool,
        now: Mono,
    ) -> Option<(String, bool)> {
        if !self.is_on {
            return None;
        }
        let is_early = !self.told || is_early(now);
        for (resource, requested) in extended_resources::of_pod(pod) {
            if self.taken.contains(&resource) {
                continue;
            }
            let requested = usize::try_from(requested).unwrap_or(usize::MAX);
            let entry = self.resources.get(&resource);
            let Some(known) = entry.filter(|entry| entry.seen) else {
                // As one that an administrator has put into the Node object.
                if entry.is_none() && !is_early {
                    continue;
                }
                return Some((Shortage::Unregistered.text(&resource), true));
            };
            let shortage = match missing(known, now) {
                Some(shortage) => shortage,
                None => {
                    let available = self.available(&resource, known, others, keeps);
                    if available >= requested {
                        continue;
                    }
                    Shortage::TooFew { requested, available }
                }
            };
            return Some((shortage.text(&resource), is_early));
        }
        None
    }

    /// Healthy devices that no container has, without those that pods will get which have been admitted.
    fn available(
        &self,
        resource: &str,
        known: &Resource,
        others: &[Admitted<'_>],
        keeps: &dyn Fn(&str) -> bool,
    ) -> usize {
        if self.has_unknown_holder(resource, others) {
            return 0;
        }
        let held = self.kept.held(resource, keeps);
        let free = known.healthy().filter(|id| !held.contains(id.as_str())).count();
        let outstanding = others.iter().filter(|(other, _)| keeps(uid(other))).map(|(other, _)| {
            let wants = extended_resources::of_pod(other).get(resource).copied().unwrap_or(0);
            let has = self.kept.held(resource, &|holder| holder == uid(other)).len();
            usize::try_from(wants).unwrap_or(0).saturating_sub(has)
        });
        free.saturating_sub(outstanding.fold(0, usize::saturating_add))
    }

    /// Whether a container that runs has devices of this resource that are in no file, because the file was damaged. Which
    /// these are is not known, so none is free. A pod without a file has no device: it ran before plugins were switched on. The
    /// kubelet goes on without its checkpoint in both cases, and allocates all devices again (K8s manager.go, `Start`).
    fn has_unknown_holder(&self, resource: &str, pods: &[Admitted<'_>]) -> bool {
        pods.iter().filter(|(pod, _)| self.kept.is_damaged(uid(pod))).any(|(pod, record)| {
            containers_of(pod).any(|container| {
                let state = record.containers.get(&container.name).map(|container| &container.state);
                state.is_some_and(|state| state.process().is_some())
                    && self.kept.get(uid(pod), &container.name, resource).is_none()
                    && self.wanted(container).iter().any(|(wanted, _)| wanted == resource)
            })
        })
    }
}

fn missing(known: &Resource, now: Mono) -> Option<Shortage> {
    if known.is_over(now) {
        return Some(Shortage::Unregistered);
    }
    known.healthy().next().is_none().then_some(Shortage::NoneHealthy)
}

/// Whether the machine has just booted.
pub fn is_early(now: Mono) -> bool {
    now.as_duration() < BOOT
}
