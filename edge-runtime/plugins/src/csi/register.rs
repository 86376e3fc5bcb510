//! A driver that was found by its socket: asked what it is and what it can do. K8s pkg/volume/csi/csi_plugin.go
//! (`RegisterPlugin`).

use std::rc::Rc;

use super::call::{call_at, failed};
use super::report::tell_soon;
use crate::connected::Place;
use crate::messages::csi_driver::{CAPABILITIES, Capabilities, NODE_INFO, NodeInfo, PLUGIN_INFO, plugin_name};
use crate::shared::Shared;

/// Takes a driver. Returns the number of the registration.
///
/// # Errors
/// It cannot be called, or is refused; the text goes to the driver.
pub(crate) async fn register(
    shared: &Rc<Shared>,
    name: &str,
    versions: &[String],
    place: Place,
) -> Result<u64, String> {
    shared.csi.drivers.borrow().admits(name, versions)?;
    let own = plugin_name(&ask(&place, PLUGIN_INFO).await?)?;
    if own != name {
        return Err(format!("the registration is for the CSI driver {name}, and another one answers at its endpoint"));
    }
    let info = NodeInfo::read(&ask(&place, NODE_INFO).await?)?;
    let capabilities = Capabilities::read(&ask(&place, CAPABILITIES).await?)?;
    // Others may have registered meanwhile.
    shared.csi.drivers.borrow().admits(name, versions)?;
    let number = shared.csi.drivers.borrow_mut().register(name, place, info, capabilities);
    log::info!("the CSI driver {name} has registered");
    tell_soon(shared);
    shared.csi.driver_came.notify_waiters();
    Ok(number)
}

async fn ask(place: &Place, method: &str) -> Result<Vec<u8>, String> {
    call_at(place, method, &[]).await.map_err(|status| failed(method, &status).why)
}
