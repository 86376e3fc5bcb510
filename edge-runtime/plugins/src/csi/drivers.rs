//! The drivers that are registered. Pure: no I/O. The newest registration of a name counts, as in the kubelet.

use std::cell::Cell;
use std::rc::Rc;

use sampan_plugins_control::MAX_DRIVERS;
use sampan_sys::vec_map::VecMap;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::connected::Place;
use crate::messages::csi_driver::{Capabilities, NodeInfo};
use crate::names::is_driver;

/// Calls to a driver at once: one that hangs takes no more descriptors and threads.
const MAX_CALLS: usize = 8;
/// Orders for a driver that are under way or wait.
const MAX_ORDERS: usize = 256;
/// Bytes of their attributes and secrets, which wait in memory; a single one may have more.
const MAX_WAITING: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct Driver {
    pub(super) name: String,
    number: u64,
    pub(super) place: Place,
    info: NodeInfo,
    pub(super) capabilities: Capabilities,
    pub(super) calls: Semaphore,
    orders: Cell<usize>,
    waiting: Cell<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Drivers {
    all: VecMap<String, Rc<Driver>>,
    newest: u64,
}

impl Drivers {
    /// Whether a driver with this name and these versions of CSI can be taken.
    ///
    /// # Errors
    /// It cannot; the text goes to the driver.
    pub(super) fn admits(&self, name: &str, versions: &[String]) -> Result<(), String> {
        if !is_driver(name) {
            return Err("the name of the CSI driver is invalid".to_owned());
        }
        // Versions 0.x had other services, and the kubelet takes none later than 1.x.
        if !versions.iter().any(|version| version.split('.').next() == Some("1")) {
            return Err(format!("the CSI driver {name} does not support version 1 of CSI: [{}]", versions.join(" ")));
        }
        if !self.all.contains_key(name) && self.all.len() >= MAX_DRIVERS {
            return Err(format!("there are {MAX_DRIVERS} CSI drivers already"));
        }
        Ok(())
    }

    /// Returns the number of the registration.
    pub(super) fn register(&mut self, name: &str, place: Place, info: NodeInfo, capabilities: Capabilities) -> u64 {
        self.newest += 1;
        let (number, name) = (self.newest, name.to_owned());
        let calls = Semaphore::new(MAX_CALLS);
        let (orders, waiting) = (Cell::new(0), Cell::new(0));
        let driver = Driver { name: name.clone(), number, place, info, capabilities, calls, orders, waiting };
        self.all.insert(name, Rc::new(driver));
        number
    }

    /// Removes the registration with this number. False if another one has replaced it.
    pub(super) fn remove(&mut self, name: &str, number: u64) -> bool {
        let is_it = self.all.get(name).is_some_and(|driver| driver.number == number);
        if is_it {
            self.all.remove(name);
        }
        is_it
    }

    pub(super) fn get(&self, name: &str) -> Option<Rc<Driver>> {
        self.all.get(name).map(Rc::clone)
    }

    /// As the daemon passes it on, for a CSINode and the labels of the Node.
    pub(super) fn shown(&self) -> Value {
        self.all.values().map(|driver| driver.shown()).collect()
    }
}

impl Driver {
    fn shown(&self) -> Value {
        let NodeInfo { id, count, topology } = &self.info;
        let labels: serde_json::Map<String, Value> =
            topology.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        let keys: Vec<&String> = topology.keys().collect();
        let mut shown = json!({"name": self.name, "nodeID": id, "topologyKeys": keys, "labels": labels});
        if let (Some(count), Some(shown)) = (count, shown.as_object_mut()) {
            shown.insert("allocatable".to_owned(), json!({"count": count}));
        }
        shown
    }
}

/// An order for a driver, until it is dropped.
#[derive(Debug)]
pub(super) struct Order {
    driver: Rc<Driver>,
    bytes: usize,
}

impl Order {
    /// `bytes`: what waits in memory with it.
    ///
    /// # Errors
    /// There are too many; the daemon tries again.
    pub(super) fn new(driver: Rc<Driver>, bytes: usize) -> Result<Self, String> {
        let (orders, waiting) = (driver.orders.get(), driver.waiting.get().saturating_add(bytes));
        if orders >= MAX_ORDERS || (orders > 0 && bytes > 0 && waiting > MAX_WAITING) {
            return Err(format!("too many orders for the CSI driver {} at once", driver.name));
        }
        driver.orders.set(orders + 1);
        driver.waiting.set(waiting);
        Ok(Self { driver, bytes })
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        self.driver.orders.set(self.driver.orders.get().saturating_sub(1));
        self.driver.waiting.set(self.driver.waiting.get().saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(drivers: &mut Drivers, name: &str, info: NodeInfo) -> u64 {
        let place = Place { folder: "/x".into(), name: "csi.sock".into() };
        drivers.register(name, place, info, Capabilities::default())
    }

    fn info(count: Option<i64>, topology: &[(&str, &str)]) -> NodeInfo {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        NodeInfo { id: "n1".into(), count, topology: topology.iter().map(pair).collect() }
    }

    #[test]
    fn newest_registration_counts() {
        let mut drivers = Drivers::default();
        let first = register(&mut drivers, "d.x", info(None, &[]));
        let second = register(&mut drivers, "d.x", info(None, &[]));
        assert!(!drivers.remove("d.x", first) && drivers.get("d.x").is_some());
        assert!(drivers.remove("d.x", second) && drivers.get("d.x").is_none());
        assert!(!drivers.remove("d.x", second));
    }

    #[test]
    fn drivers_are_shown_as_in_a_csi_node() {
        let mut drivers = Drivers::default();
        assert_eq!(drivers.shown(), json!([]));
        register(&mut drivers, "b.x", info(Some(8), &[("t.x/zone", "z1"), ("t.x/host", "n1")]));
        register(&mut drivers, "a.x", info(None, &[]));
        let wanted = json!([
            {"name": "a.x", "nodeID": "n1", "topologyKeys": [], "labels": {}},
            {"name": "b.x", "nodeID": "n1", "topologyKeys": ["t.x/host", "t.x/zone"],
             "labels": {"t.x/host": "n1", "t.x/zone": "z1"}, "allocatable": {"count": 8}},
        ]);
        assert_eq!(drivers.shown(), wanted);
    }

    #[test]
    fn drivers_and_orders_have_limits() {
        let mut drivers = Drivers::default();
        let admits = |drivers: &Drivers, name: &str, version: &str| drivers.admits(name, &[version.to_owned()]);
        for number in 0..MAX_DRIVERS {
            let name = format!("d{number}.x");
            admits(&drivers, &name, "1.0.0").expect("there is room");
            register(&mut drivers, &name, info(None, &[]));
        }
        assert!(admits(&drivers, "new.x", "1.0.0").is_err_and(|why| why.contains("32")));
        assert!(admits(&drivers, "d0.x", "1.12.0").is_ok());
        assert!(drivers.admits("d0.x", &[]).is_err() && admits(&drivers, "../x", "1.0.0").is_err());
        for version in ["0.3.0", "", "2.0.0", "10.0", "v1"] {
            assert!(admits(&drivers, "d0.x", version).is_err(), "{version}");
        }
        let driver = drivers.get("d0.x").expect("registered");
        let order = |bytes| Order::new(Rc::clone(&driver), bytes);
        let orders: Vec<_> = (0..MAX_ORDERS).map(|_| order(0).expect("there is room")).collect();
        assert!(order(0).is_err());
        drop(orders);
        let large = order(MAX_WAITING + 1).expect("the only one");
        assert!(order(1).is_err() && order(0).is_ok(), "what undoes a volume has nothing with it");
        drop(large);
        let half = order(MAX_WAITING / 2).expect("there is room");
        assert!(order(MAX_WAITING / 2).is_ok() && order(MAX_WAITING / 2 + 1).is_err());
        drop(half);
    }
}
