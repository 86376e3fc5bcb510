//! The plugins that are connected, and their devices. Pure: no I/O, no clock. The newest registration of a resource
//! counts, as in the kubelet.

use std::rc::Rc;

use sampan_plugins_control::{Device, MAX_RESOURCES};
use sampan_sys::vec_map::VecMap;

/// Devices of all resources together: a node holds their names, and so does the daemon.
const MAX_ALL_DEVICES: usize = 16 << 10;

/// By resource. `C` is the connection to a plugin, `T` its task.
#[derive(Debug)]
pub(crate) struct Plugins<C, T> {
    plugins: VecMap<String, Plugin<C, T>>,
    newest: u64,
}

#[derive(Debug)]
struct Plugin<C, T> {
    /// Number of the registration.
    number: u64,
    task: T,
    connection: Option<Rc<C>>,
    /// Sorted by name. `None`: it has not listed them, or has gone.
    listed: Option<Vec<Device>>,
    /// The daemon does not know the list yet.
    is_news: bool,
}

/// What the daemon is to be told of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Devices(Vec<Device>),
    Gone,
}

impl<C, T> Default for Plugins<C, T> {
    fn default() -> Self {
        Self { plugins: VecMap::new(), newest: 0 }
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

    /// Replaces the plugin of a resource. Returns the task of the one before.
    pub(crate) fn register(&mut self, resource: &str, start: impl FnOnce(u64) -> T) -> Option<T> {
        self.newest += 1;
        let number = self.newest;
        let plugin = Plugin { number, task: start(number), connection: None, listed: None, is_news: false };
        let before = self.plugins.insert(resource.to_owned(), plugin)?;
        if let Some(plugin) = self.plugins.get_mut(resource) {
            // The daemon knows its devices as those that can be had.
            plugin.is_news = before.listed.is_some() || before.is_news;
        }
        Some(before.task)
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
        let is_news = plugin.listed.take().is_some();
        plugin.is_news |= is_news;
        is_news
    }

    /// Number and connection of the plugin of a resource that has listed its devices.
    pub(crate) fn connection(&self, resource: &str) -> Option<(u64, Rc<C>)> {
        let plugin = self.plugins.get(resource).filter(|plugin| plugin.listed.is_some())?;
        plugin.connection.as_ref().map(|connection| (plugin.number, Rc::clone(connection)))
    }

    /// What the daemon does not know yet.
    pub(crate) fn news(&mut self) -> Vec<(String, News)> {
        let mut news = Vec::new();
        for (resource, plugin) in self.plugins.iter_mut() {
            if std::mem::take(&mut plugin.is_news) {
                let what = plugin.listed.clone().map_or(News::Gone, News::Devices);
                news.push((resource.clone(), what));
            }
        }
        news
    }

    /// Another daemon knows nothing: everything that is listed is news.
    pub(crate) fn begin(&mut self) {
        for plugin in self.plugins.values_mut() {
            plugin.is_news = plugin.listed.is_some();
        }
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
mod tests {
    use super::*;

    type Table = Plugins<(), u64>;

    fn device(id: &str, healthy: bool) -> Device {
        Device { id: id.to_owned(), healthy, numa: Vec::new() }
    }

    fn registered(table: &mut Table, resource: &str) -> u64 {
        table.register(resource, |number| number);
        let number = table.newest;
        table.connected(resource, number, Rc::new(()));
        number
    }

    #[test]
    fn newest_registration_counts() {
        let mut table = Table::default();
        let first = registered(&mut table, "r");
        assert!(table.connection("r").is_none(), "it has not listed its devices");
        assert_eq!(table.listed("r", first, vec![device("a", true)]), Ok(true));
        assert_eq!(table.connection("r").map(|(number, _)| number), Some(first));
        assert_eq!(table.news(), [("r".to_owned(), News::Devices(vec![device("a", true)]))]);
        assert_eq!(table.register("r", |number| number), Some(first));
        let second = table.newest;
        assert_eq!(table.news(), [("r".to_owned(), News::Gone)]);
        assert_eq!(table.listed("r", first, vec![device("a", true)]), Ok(false), "of the one before");
        assert!(!table.gone("r", first) && table.remove("r", first).is_none());
        assert!(table.news().is_empty());
        // The same devices as before are news, because they were gone.
        assert_eq!(table.listed("r", second, vec![device("a", true)]), Ok(true));
        assert_eq!(table.news(), [("r".to_owned(), News::Devices(vec![device("a", true)]))]);
        assert_eq!(table.remove("r", second), Some(second));
    }

    #[test]
    fn only_changes_are_news() {
        let mut table = Table::default();
        let number = registered(&mut table, "r");
        assert!(!table.gone("r", number), "nothing was listed");
        assert_eq!(table.listed("r", number, Vec::new()), Ok(true), "a list without devices is one");
        assert_eq!(table.listed("r", number, Vec::new()), Ok(false));
        assert_eq!(table.news().len(), 1);
        assert_eq!(table.listed("r", number, vec![device("a", true)]), Ok(true));
        assert_eq!(table.listed("r", number, vec![device("a", false)]), Ok(true));
        assert_eq!(table.news(), [("r".to_owned(), News::Devices(vec![device("a", false)]))], "the last state");
        table.begin();
        assert_eq!(table.news().len(), 1);
        assert!(table.gone("r", number) && table.connection("r").is_none());
        assert_eq!(table.news(), [("r".to_owned(), News::Gone)]);
        table.begin();
        assert!(table.news().is_empty(), "a new daemon is told of nothing that has gone");
    }

    #[test]
    fn resources_and_devices_have_limits() {
        let mut table = Table::default();
        for number in 0..MAX_RESOURCES {
            table.admits(&number.to_string()).expect("there is room");
            registered(&mut table, &number.to_string());
        }
        assert!(table.admits("new").is_err_and(|why| why.contains("64")) && table.admits("0").is_ok());
        let many: Vec<_> = (0..MAX_ALL_DEVICES).map(|id| device(&id.to_string(), true)).collect();
        assert_eq!(table.listed("0", 1, many.clone()), Ok(true));
        assert!(table.listed("1", 2, vec![device("a", true)]).is_err_and(|why| why.contains("16384")));
        assert_eq!(table.listed("0", 1, vec![device("a", true)]), Ok(true));
        assert_eq!(table.listed("1", 2, vec![device("a", true)]), Ok(true));
        assert_eq!(table.count(), (2, 2));
    }

    #[test]
    fn healthy_devices_and_numa_nodes_are_found() {
        let mut table = Table::default();
        let number = registered(&mut table, "r");
        let near = Device { numa: vec![1], ..device("b", true) };
        table.listed("r", number, vec![device("a", false), near]).expect("there is room");
        assert_eq!(table.healthy().collect::<Vec<_>>(), [("r", "b", &[1][..])]);
        assert_eq!(table.numa("r", "b"), vec![1_i64]);
        assert!(table.numa("r", "x").is_empty() && table.numa("s", "b").is_empty());
    }
}
