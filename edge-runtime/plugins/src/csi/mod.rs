//! Volumes of CSI drivers: drivers that register, and the daemon's orders to mount and unmount volumes in pods, as the
//! kubelet carries them out (K8s pkg/volume/csi). All that must outlive this process is in the file system.
//!
//! | file | owns |
//! |---|---|
//! | `state` | what this process knows, and why an order fails: no I/O |
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
pub(crate) mod state;
mod turns;
mod unmount;
mod volume;

use std::rc::Rc;
use std::time::Duration;

use sampan_plugins_control::{FromHelper, ToHelper};
use tokio::task::spawn_local;
use tokio::time::sleep;

pub use owner::own;
pub(crate) use register::register;

use crate::shared::{MAX_REASON, Shared};

/// Between a change of drivers and its report: when this process starts, all of them register at once. A list without some
/// of them would take their volumes from the node.
const SOON: Duration = Duration::from_millis(300);

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

fn tell_drivers_soon(shared: &Rc<Shared>) {
    if shared.csi.is_telling.replace(true) {
        return;
    }
    let shared = Rc::clone(shared);
    spawn_local(async move {
        sleep(SOON).await;
        shared.csi.is_telling.set(false);
        shared.tell_drivers();
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
