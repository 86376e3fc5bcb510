//! The plugins that are connected, and their devices. Pure: no I/O, and the caller has the clock. The newest registration
//! counts, of a resource as in the kubelet, and of a socket: what serves there now has one resource.

use std::rc::Rc;
use std::time::{Duration, Instant};

use sampan_plugins_control::{Device, MAX_RESOURCES};
use sampan_sys::vec_map::VecMap;

use crate::connected::Place;
use crate::messages::registration::Options;

/// Devices of all resources together: a node holds their names, and so does the daemon.
const MAX_ALL_DEVICES: usize = 16 << 10;

/// Between two lists of a resource for the daemon: each changes the Node object, and has pods look again. For as long a
/// plugin that replaces another one has time to list its devices: the Node object does not change meanwhile.
const EACH: Duration = Duration::from_secs(1);

/// By resource. `C` is the connection to a plugin, `T` its task.
#[derive(Debug)]
pub(crate) struct Plugins<C, T> {
    plugins: VecMap<String, Plugin<C, T>>,
    /// What the daemon knows, by resource.
    told: VecMap<String, Told>,
    newest: u64,
}

/// What a plugin has registered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) resource: String,
    pub(crate) place: Place,
    pub(crate) options: Options,
    /// It came at the kubelet's socket: no folder shows it to another helper.
    pub(crate) is_kept: bool,
}

#[derive(Debug)]
struct Plugin<C, T> {
    /// Number of the registration.
    number: u64,
    since: Instant,
    registration: Registration,
    task: T,
    connection: Option<Rc<C>>,
    /// Sorted by name. `None`: it has not listed them, or has gone.
    listed: Option<Vec<Device>>,
    /// The daemon does not know the list yet.
    is_news: bool,
}

#[derive(Debug)]
struct Told {
    /// Number of the registration whose devices it knows.
    number: u64,
    /// It knows devices; otherwise that they have gone.
    is_listed: bool,
    /// When the devices were told last.
    at: Instant,
}

/// What the daemon is to be told of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Devices(Vec<Device>),
    Gone,
}

impl<C, T> Default for Plugins<C, T> {
    fn default() -> Self {
        Self { plugins: VecMap::new(), told: VecMap::new(), newest: 0 }
    }
}

impl<C, T> Plugins<C, T> {
    /// Whether there is room for a plugin of this resource.
    ///
    /// # Errors
    /// There is none; the text says what the limit is.
    pub(crate) fn admits(&self, resource: &str) -> Result<(), String> {
        if self.plugins.contains_key(resource) || self.plugins.len() < MAX_RESOURCES {
            return Ok(());
        }
        Err(format!("there are plugins for {MAX_RESOURCES} resources already"))
    }

    /// Replaces the plugin of a resource, and those at the same place: one that starts again under another resource is not
    /// there under the first any more. Returns resources and tasks of those before.
    pub(crate) fn register(
        &mut self,
        registration: Registration,
        since: Instant,
        start: impl FnOnce(u64) -> T,
    ) -> Vec<(String, T)> {
        self.newest += 1;
        let number = self.newest;
        let is_before = |plugin: &Plugin<C, T>| {
            plugin.registration.resource == registration.resource || plugin.registration.place == registration.place
        };
        let before: Vec<String> =
            self.plugins.iter().filter(|(_, plugin)| is_before(plugin)).map(|(name, _)| name.clone()).collect();
        let mut replaced = Vec::new();
        for resource in before {
            if let Some(plugin) = self.plugins.remove(&resource) {
                replaced.push((resource, plugin.task));
            }
        }
        let (resource, task) = (registration.resource.clone(), start(number));
        let plugin = Plugin { number, since, registration, task, connection: None, listed: None, is_news: false };
        self.plugins.insert(resource, plugin);
        replaced
    }

    /// Removes the plugin with this number. Returns its task.
    pub(crate) fn remove(&mut self, resource: &str, number: u64) -> Option<T> {
        self.of(resource, number)?;
        self.plugins.remove(resource).map(|plugin| plugin.task)
    }

    pub(crate) fn connected(&mut self, resource: &str, number: u64, connection: Rc<C>) {
        if let Some(plugin) = self.of(resource, number) {
            plugin.connection = Some(connection);
        }
    }

    /// The plugin has listed its devices. Returns whether that is news.
    ///
    /// # Errors
    /// There are too many of all plugins.
    pub(crate) fn listed(&mut self, resource: &str, number: u64, devices: Vec<Device>) -> Result<bool, String> {
        let others = self.plugins.iter().filter(|(name, _)| name.as_str() != resource);
        let others: usize = others.filter_map(|(_, plugin)| plugin.listed.as_ref()).map(Vec::len).sum();
        if others + devices.len() > MAX_ALL_DEVICES {
            return Err(format!("all plugins together have more than {MAX_ALL_DEVICES} devices"));
        }
        let Some(plugin) = self.of(resource, number) else { return Ok(false) };
        if plugin.listed.as_ref() == Some(&devices) {
            return Ok(false);
        }
        plugin.listed = Some(devices);
        plugin.is_news = true;
        Ok(true)
    }

    /// The plugin has gone, but may come back with this registration. Returns whether that is news.
    pub(crate) fn gone(&mut self, resource: &str, number: u64) -> bool {
        let Some(plugin) = self.of(resource, number) else { return false };
        plugin.connection = None;
        plugin.is_news = false;
        plugin.listed.take().is_some()
    }

    /// Number and connection of the plugin of a resource that has listed its devices.
    pub(crate) fn connection(&self, resource: &str) -> Option<(u64, Rc<C>)> {
        let plugin = self.plugins.get(resource).filter(|plugin| plugin.listed.is_some())?;
        plugin.connection.as_ref().map(|connection| (plugin.number, Rc::clone(connection)))
    }

    /// What the daemon is to know now: what has gone at once, and of each resource the newest devices once a second.
    pub(crate) fn news(&mut self, now: Instant) -> Vec<(String, News)> {
        let (plugins, known) = (&mut self.plugins, &mut self.told);
        let mut news = Vec::new();
        let is_recent = |at: Instant| now.saturating_duration_since(at) < EACH;
        for (resource, told) in known.iter_mut().filter(|(_, told)| told.is_listed) {
            let is_gone = |plugin: &Plugin<C, T>| {
                plugin.listed.is_none() && (plugin.number == told.number || !is_recent(plugin.since))
            };
            if plugins.get(resource).is_none_or(is_gone) {
                told.is_listed = false;
                news.push((resource.clone(), News::Gone));
            }
        }
        for (resource, plugin) in plugins.iter_mut().filter(|(_, plugin)| plugin.is_news) {
            let (Some(listed), told) = (&plugin.listed, known.get(resource)) else { continue };
            if told.is_some_and(|told| is_recent(told.at)) {
                continue;
            }
            // Orders to the plugin before have failed: their containers are to try again.
            if told.is_some_and(|told| told.is_listed && told.number != plugin.number) {
                news.push((resource.clone(), News::Gone));
            }
            plugin.is_news = false;
            news.push((resource.clone(), News::Devices(listed.clone())));
            known.insert(resource.clone(), Told { number: plugin.number, is_listed: true, at: now });
        }
        known.retain(|resource, told| told.is_listed || is_recent(told.at) || plugins.contains_key(resource));
        news
    }

    /// Whether something waits until it may be told.
    pub(crate) fn has_news(&self) -> bool {
        self.plugins.iter().any(|(resource, plugin)| {
            plugin.is_news || self.told.get(resource).is_some_and(|told| told.is_listed && told.number != plugin.number)
        })
    }

    /// Another daemon knows nothing: everything that is listed is news, and at once.
    pub(crate) fn begin(&mut self) {
        self.told.clear();
        for plugin in self.plugins.values_mut() {
            plugin.is_news = plugin.listed.is_some();
        }
    }

    /// Registrations that another helper is to know.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Registration> {
        self.plugins.values().map(|plugin| &plugin.registration).filter(|registration| registration.is_kept)
    }

    /// NUMA nodes of a device.
    pub(crate) fn numa(&self, resource: &str, id: &str) -> Vec<i64> {
        let listed = self.plugins.get(resource).and_then(|plugin| plugin.listed.as_deref()).unwrap_or_default();
        let at = listed.binary_search_by(|device| device.id.as_str().cmp(id)).ok();
        at.and_then(|at| listed.get(at)).map(|device| device.numa.clone()).unwrap_or_default()
    }

    /// Healthy devices: resource, name and NUMA nodes.
    pub(crate) fn healthy(&self) -> impl Iterator<Item = (&str, &str, &[i64])> {
        self.plugins.iter().flat_map(|(resource, plugin)| {
            let listed = plugin.listed.as_deref().unwrap_or_default();
            let healthy = listed.iter().filter(|device| device.healthy);
            healthy.map(move |device| (resource.as_str(), device.id.as_str(), device.numa.as_slice()))
        })
    }

    /// How many resources are listed, and how many devices they have.
    pub(crate) fn count(&self) -> (usize, usize) {
        let listed = self.plugins.values().filter_map(|plugin| plugin.listed.as_ref());
        listed.fold((0, 0), |(resources, devices), listed| (resources + 1, devices + listed.len()))
    }

    fn of(&mut self, resource: &str, number: u64) -> Option<&mut Plugin<C, T>> {
        self.plugins.get_mut(resource).filter(|plugin| plugin.number == number)
    }
}

#[cfg(test)]
mod tests;
