//! Resources of device plugins: what their plugins report, and what a container or pod gets of it. Decides alone; the
//! plugins are asked elsewhere.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use sampan_plugins_control::{Device, MAX_RESOURCES};

use super::kept::Kept;
use super::shortage::Shortage;
use crate::config::Config;
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::pod::extended_resources;
use crate::pod::record::PodRecord;
use crate::pod::spec::{containers_of, uid};
use crate::sys::files::{named, replace};
use crate::sys::vec_map::VecMap;

/// How long a resource is there without its plugin (K8s pkg/kubelet/cm/devicemanager/types.go, `endpointStopGracePeriod`).
/// Then it has no devices.
const WITHOUT_PLUGIN: Duration = Duration::from_secs(300);

/// After a boot plugins may be slow to start: for this long no pod is refused for a device that is missing.
const BOOT: Duration = Duration::from_secs(300);

/// Resources that are known at once: those that plugins have, and those that they had.
const MOST: usize = 2 * MAX_RESOURCES;

/// What plugins have, and what containers have of it. Empty unless the configuration wants device plugins.
#[derive(Debug, Default)]
pub struct Plugins {
    is_on: bool,
    /// The helper has named all resources once.
    told: bool,
    /// Resources that the node has without a plugin, by its configuration.
    taken: BTreeSet<String>,
    resources: VecMap<String, Resource>,
    /// The file is older than the names of `resources`.
    unsaved: bool,
    pub kept: Kept,
}

#[derive(Debug, Default)]
struct Resource {
    /// As its plugin has listed them last.
    devices: Vec<Device>,
    /// Since when it has no plugin.
    gone: Option<Mono>,
    /// The helper that is connected has named it.
    named: bool,
    /// It had a plugin since this daemon started. Otherwise only its name is known, from the file.
    seen: bool,
}

impl Resource {
    /// Whether a device that the plugin has listed last is healthy.
    fn health(&self, id: &str) -> Option<bool> {
        let at = self.devices.binary_search_by(|device| device.id.as_str().cmp(id)).ok()?;
        self.devices.get(at).map(|device| device.healthy)
    }

    fn is_healthy(&self, id: &str) -> bool {
        self.gone.is_none() && self.health(id) == Some(true)
    }

    fn healthy(&self) -> impl Iterator<Item = &String> {
        let all = self.devices.iter().filter(|device| device.healthy && self.gone.is_none());
        all.map(|device| &device.id)
    }

    fn is_over(&self, now: Mono) -> bool {
        self.gone.is_some_and(|since| now.since(since) >= WITHOUT_PLUGIN)
    }
}

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
    pub fn load(config: &Config, paths: &Paths) -> Self {
        if !config.plugins.device_plugins {
            return Self::default();
        }
        let taken = config.devices.keys().cloned().collect();
        let mut own = Self { is_on: true, taken, kept: Kept::load(paths), ..Self::default() };
        own.load_names(&paths.plugin_resources());
        own
    }

    /// Reads which resources plugins had before this daemon started. As in the kubelet, they are still a plugin's (K8s
    /// manager.go, `readCheckpoint`).
    fn load_names(&mut self, file: &Path) {
        let Ok(text) = std::fs::read_to_string(file) else { return };
        for name in text.lines().take(MOST) {
            if extended_resources::is_extended(name) && !self.taken.contains(name) {
                let unseen = Resource { gone: Some(Mono(0)), ..Resource::default() };
                self.resources.insert(name.to_owned(), unseen);
            }
        }
    }

    /// Writes the names of all resources to the disk, if one is new. A failure is logged, and repaired with the next change.
    pub fn save_names(&mut self, paths: &Paths) {
        if !std::mem::take(&mut self.unsaved) {
            return;
        }
        let mut text = String::new();
        for name in self.resources.keys() {
            text.push_str(name);
            text.push('\n');
        }
        let file = paths.plugin_resources();
        if let Err(error) = replace(&file, text.as_bytes(), true).map_err(named(&file)) {
            log::warn!("names of resources of plugins are not kept: {error}");
            self.unsaved = true;
        }
    }

    /// Of a helper that has named all, which is nothing.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self { is_on: true, told: true, ..Self::default() }
    }

    /// Resources that the container asks plugins for, and how many of each.
    pub fn wanted(&self, container: &Container) -> Vec<(String, usize)> {
        let mut wanted = Vec::new();
        if self.is_on {
            for (resource, count) in extended_resources::of(container) {
                if !self.taken.contains(&resource) {
                    wanted.push((resource, count));
                }
            }
        }
        wanted
    }

    /// Names of resources with the number of all devices and of healthy ones. Those of the file are left out until the helper
    /// has named all: their plugins may be connected to it.
    pub fn capacity(&self, now: Mono) -> impl Iterator<Item = (&String, usize, usize)> {
        let known = self.resources.iter().filter(|(_, resource)| resource.seen || self.told);
        known.map(move |(name, resource)| match resource.is_over(now) {
            true => (name, 0, 0),
            false => (name, resource.devices.len(), resource.healthy().count()),
        })
    }

    /// Whether the pod asks for this resource of plugins, or for any.
    pub fn concerns(&self, pod: &Pod, resource: Option<&str>) -> bool {
        containers_of(pod).any(|container| {
            self.wanted(container).iter().any(|(wanted, _)| resource.is_none_or(|resource| wanted == resource))
        })
    }

    /// The helper is connected, and names what it has.
    pub fn begin(&mut self) {
        self.resources.values_mut().for_each(|resource| resource.named = false);
    }

    /// A plugin lists its devices. Returns whether that is news.
    pub fn listed(&mut self, name: &str, devices: Vec<Device>) -> bool {
        if self.taken.contains(name) {
            log::warn!("a device plugin offers {name}, which is refused: devices.{name} is in config.yaml");
            return false;
        }
        if !self.has_room(name) {
            log::warn!("{name} of a device plugin is left out: there are more than {MOST} resources");
            return false;
        }
        let resource = self.entry(name);
        let is_news = !resource.named || resource.gone.is_some() || resource.devices != devices;
        (resource.devices, resource.gone, resource.named, resource.seen) = (devices, None, true, true);
        is_news
    }

    fn entry(&mut self, name: &str) -> &mut Resource {
        self.unsaved |= !self.resources.contains_key(name);
        self.resources.get_or_default(name.to_owned())
    }

    /// Makes room for one more resource: one whose plugin has gone is forgotten.
    fn has_room(&mut self, name: &str) -> bool {
        if self.resources.len() < MOST || self.resources.contains_key(name) {
            return true;
        }
        let gone = self.resources.iter().filter_map(|(other, resource)| Some((resource.gone?, other.clone())));
        match gone.min() {
            Some((_, first)) => self.resources.remove(&first).is_some(),
            None => false,
        }
    }

    /// The plugin of a resource has gone. Returns whether that is news.
    pub fn gone(&mut self, name: &str, now: Mono) -> bool {
        if self.taken.contains(name) || !self.has_room(name) {
            return false;
        }
        let resource = self.entry(name);
        let is_news = resource.gone.is_none() || !resource.seen;
        (resource.named, resource.seen) = (true, true);
        resource.gone.get_or_insert(now);
        is_news
    }

    /// The helper has named all: the plugins of the others have gone. Returns whether there is news.
    pub fn told(&mut self, now: Mono) -> bool {
        let mut is_news = !std::mem::replace(&mut self.told, true);
        for resource in self.resources.values_mut().filter(|resource| !resource.named && resource.gone.is_none()) {
            resource.gone = Some(now);
            is_news = true;
        }
        is_news
    }

    /// The helper has ended, and with it the connections to all plugins.
    pub fn down(&mut self, now: Mono) {
        for resource in self.resources.values_mut() {
            resource.gone.get_or_insert(now);
        }
    }

    /// Health of a device as the API names it. What its plugin says counts only while it is there.
    pub fn health(&self, resource: &str, id: &str) -> &'static str {
        let known = self.resources.get(resource).filter(|resource| resource.gone.is_none());
        match known.and_then(|known| known.health(id)) {
            Some(true) => "Healthy",
            Some(false) => "Unhealthy",
            None => "Unknown",
        }
    }

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
    /// these are is not known, so none is free. A pod without a file has none: it ran before plugins were switched on. The
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

#[cfg(test)]
mod tests;
