//! State of this process: after a restart all of it is found in the file system, or learned again.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use sampan_sys::vec_map::VecMap;
use serde_json::Value;
use tokio::sync::Notify;

use super::drivers::{Driver, Drivers, Order};
use super::failure::Failure;
use super::mounts::Mounts;
use super::turns::Turns;

#[derive(Debug, Default)]
pub(crate) struct Csi {
    /// Name of the node, for records.
    pub(super) node: OnceCell<String>,
    pub(super) drivers: RefCell<Drivers>,
    pub(super) turns: Turns,
    pub(super) mounts: RefCell<Mounts>,
    /// Paths at which this process has had volumes staged.
    pub(super) staged: RefCell<VecMap<String, ()>>,
    /// Pods of the last `Keep`, and those whose volumes were mounted since.
    pub(super) kept: RefCell<VecMap<String, ()>>,
    /// Number of the last `Keep`.
    pub(super) keeps: Cell<u64>,
    pub(super) asks_again: Cell<bool>,
    pub(super) driver_came: Notify,
    pub(super) is_telling: Cell<bool>,
}

impl Csi {
    /// All drivers, for `Drivers`.
    pub(crate) fn shown(&self) -> Value {
        self.drivers.borrow().shown()
    }

    pub(super) fn driver(&self, name: &str) -> Result<Rc<Driver>, Failure> {
        self.drivers.borrow().get(name).ok_or_else(|| Failure {
            why: format!("driver name {name} not found in the list of registered CSI drivers"),
            gone: true,
        })
    }

    /// Counts an order for a driver, and the bytes that wait with it, until it ends.
    pub(super) fn order(&self, name: &str, bytes: usize) -> Result<Order, Failure> {
        Ok(Order::new(self.driver(name)?, bytes)?)
    }
}
