//! Volumes of CSI drivers: drivers that register, and the daemon's orders to mount and unmount volumes in pods, as the
//! kubelet carries them out (K8s pkg/volume/csi). All that must outlive this process is in the file system.
//!
//! | file | owns |
//! |---|---|
//! | `register` | a driver that was found by its socket |
//! | `drivers` | the drivers that are registered: no I/O |
//! | `call` | one call to a driver, and work that may wait for the disk |
//! | `turns` | one order at a time for a volume |
//! | `mount`, `unmount`, `keep` | the orders of the daemon |
//! | `again` | drivers that want volumes published again |
//! | `mounts` | what this process has mounted: no I/O, no clock |
//! | `volume`, `maps` | a volume as the driver is told of it: no I/O |
//! | `record`, `paths` | what is kept, and where: no I/O |
//! | `disk`, `folder` | records and folders on the disk |
//! | `owner` | fsGroup, in a process of its own |

mod again;
mod call;
mod disk;
mod drivers;
mod folder;
mod keep;
mod maps;
mod mount;
mod mounts;
mod owner;
mod paths;
mod record;
mod register;
mod turns;
mod unmount;
mod volume;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use sampan_plugins_control::{FromHelper, ToHelper};
use sampan_sys::vec_map::VecMap;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::sleep;

use self::drivers::{Driver, Drivers, Order};
use self::mounts::Mounts;
use self::turns::Turns;
pub use owner::own;
pub(crate) use register::register;

use crate::orders::MAX_REASON;
use crate::shared::Shared;

/// Between a change of drivers and its report: when this process starts, all of them register at once. A list without some
/// of them would take their volumes from the node.
const SOON: Duration = Duration::from_millis(300);

/// State of this process.
#[derive(Debug, Default)]
pub(crate) struct Csi {
    node: OnceCell<String>,
    drivers: RefCell<Drivers>,
    turns: Turns,
    mounts: RefCell<Mounts>,
    /// Volumes that this process has had staged, by driver and handle.
    staged: RefCell<VecMap<(String, String), ()>>,
    /// Pods of the last `Keep`, and those whose volumes were mounted since.
    kept: RefCell<VecMap<String, ()>>,
    /// Number of the last `Keep`.
    keeps: Cell<u64>,
    asks_again: Cell<bool>,
    driver_came: Notify,
    is_telling: Cell<bool>,
}

/// Why an order has failed. `gone`: its driver is not registered.
#[derive(Debug)]
struct Failure {
    why: String,
    gone: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, gone: false }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        error.to_string().into()
    }
}

impl Csi {
    /// All drivers, for `Drivers`.
    pub(crate) fn shown(&self) -> Value {
        self.drivers.borrow().shown()
    }

    fn driver(&self, name: &str) -> Result<Rc<Driver>, Failure> {
        self.drivers.borrow().get(name).ok_or_else(|| Failure {
            why: format!("driver name {name} not found in the list of registered CSI drivers"),
            gone: true,
        })
    }

    /// Counts an order for a driver until it ends.
    fn order(&self, name: &str) -> Result<Order, Failure> {
        Ok(Order::new(self.driver(name)?)?)
    }
}

/// Makes the folders that manifests of drivers expect to be there. `node`: name of the node, for records.
pub(crate) fn start(shared: &Rc<Shared>, node: &str) {
    shared.csi.node.get_or_init(|| node.to_owned());
    for name in ["plugins", "pods"] {
        let path = shared.settings.root.join(name);
        if let Err(error) = crate::folder::make(&path) {
            shared.refuses(&path.display().to_string(), error);
        }
    }
}

/// The driver's socket has gone.
pub(crate) fn unregister(shared: &Rc<Shared>, name: &str, number: u64) {
    if shared.csi.drivers.borrow_mut().remove(name, number) {
        log::info!("the CSI driver {name} has gone");
        tell_drivers_soon(shared);
    }
}

/// Tells the daemon which drivers there are.
pub(crate) fn tell_drivers(shared: &Shared) {
    shared.tell(&FromHelper::Drivers { drivers: shared.csi.shown() });
}

fn tell_drivers_soon(shared: &Rc<Shared>) {
    if shared.csi.is_telling.replace(true) {
        return;
    }
    let shared = Rc::clone(shared);
    spawn_local(async move {
        sleep(SOON).await;
        shared.csi.is_telling.set(false);
        tell_drivers(&shared);
    });
}

/// An order of the daemon about a volume.
pub(crate) fn told(shared: &Rc<Shared>, line: ToHelper) {
    let here = Rc::clone(shared);
    match line {
        ToHelper::Mount { id, mount } => {
            shared.csi.kept.borrow_mut().insert(mount.pod.uid.clone(), ());
            answer(shared, async move { mount::mount(&here, id, *mount).await });
        }
        ToHelper::Unmount { id, pod, volume } => {
            shared.csi.kept.borrow_mut().remove(&pod);
            answer(shared, async move { unmount::unmount(&here, id, &pod, &volume).await });
        }
        ToHelper::Keep { pods } => keep::keep(&here, pods),
        _ => {}
    }
}

/// Sends the answer to an order when it is there. Drivers have limits of orders.
fn answer(shared: &Rc<Shared>, order: impl Future<Output = FromHelper> + 'static) {
    let (shared, connection) = (Rc::clone(shared), shared.connection());
    spawn_local(async move {
        let mut answer = order.await;
        if let FromHelper::Failed { why, .. } = &mut answer {
            *why = why.chars().take(MAX_REASON).collect();
        }
        // Another daemon has other numbers.
        if shared.connection() == connection {
            shared.tell(&answer);
        }
    });
}
