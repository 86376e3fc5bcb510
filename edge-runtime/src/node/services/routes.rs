//! When the routes to Services' addresses are checked: with each change, and by housekeeping, since other programs
//! delete routes, too. Their content comes from [`crate::net::services::ranges`].

use super::{Routes, Services};
use crate::launch::Launch;
use crate::net::netlink::Socket;
use crate::net::services::routes;

impl Services {
    /// Reconciles the kernel's routes.
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
