//! What the daemon is told of drivers that come and go.

use std::rc::Rc;
use std::time::Duration;

use sampan_plugins_control::FromHelper;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::shared::Shared;

/// Between a change of drivers and its report: when this process starts, all of them register at once. A list without some
/// of them would take their volumes from the node.
const SOON: Duration = Duration::from_millis(300);

/// The driver's socket has gone.
pub(crate) fn unregister(shared: &Rc<Shared>, name: &str, number: u64) {
    if shared.csi.drivers.borrow_mut().remove(name, number) {
        log::info!("the CSI driver {name} has gone");
        tell_soon(shared);
    }
}

/// Tells the daemon soon which drivers there are.
pub(super) fn tell_soon(shared: &Rc<Shared>) {
    if shared.csi.is_telling.replace(true) {
        return;
    }
    let shared = Rc::clone(shared);
    spawn_local(async move {
        sleep(SOON).await;
        shared.csi.is_telling.set(false);
        shared.tell(&FromHelper::Drivers { drivers: shared.csi.shown() });
    });
}
