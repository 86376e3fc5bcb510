//! Resources of device plugins: what their plugins report. What a container or pod gets of it is decided in `next`; the
//! plugins are asked elsewhere.

mod next;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use sampan_plugins_control::{Device, MAX_RESOURCES};

pub use self::next::{Admitted, Next, is_early};
use super::kept::Kept;
use crate::config::Config;
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::pod::extended_resources;
use crate::pod::spec::containers_of;
use crate::sys::files::{named, replace};
use crate::sys::vec_map::VecMap;

/// How long a resource is there without its plugin (K8s pkg/kubelet/cm/devicemanager/types.go, `endpointStopGracePeriod`).
/// Then it has no devices.
const WITHOUT_PLUGIN: Duration = Duration::from_secs(300);

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
    /// The list that its plugin has sent last.
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
            log::warn!("cannot keep the names of resources of plugins: {error}");
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
}

#[cfg(test)]
mod tests;
