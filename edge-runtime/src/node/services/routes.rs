//! When the routes to Services' addresses are looked at: with each change, and by housekeeping, since others delete routes,
//! too. What they are to be is in [`crate::net::services::ranges`].

use super::Services;
use crate::launch::Launch;
use crate::net::netlink::Socket;
use crate::net::services::routes;

/// What is known of the routes.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// For all that is known the kernel has none of ours, and is to have none.
    none: bool,
    /// The kernel has refused: told once.
    refused: bool,
}

impl Services {
    /// Makes the kernel's routes what they are to be.
    pub(in super::super) fn keep_routes(&mut self, launch: &Launch) {
        let served = self.elsewhere.is_none() && self.enabled;
        if self.routes.none && (!served || self.views.is_empty()) {
            return;
        }
        let bridge = &launch.sandboxes.teardown.network.settings().bridge;
        let ips = self.views.values().flat_map(|view| view.ips()).filter(|_| served);
        match Socket::open().and_then(|mut socket| routes::keep(&mut socket, bridge, ips)) {
            Ok(some) => self.routes = Routes { none: !some, refused: false },
            Err(error) => {
                if !std::mem::replace(&mut self.routes.refused, true) {
                    log::warn!(
                        "processes on the node's network may not reach Services without a default route: {error}"
                    );
                }
            }
        }
    }
}
