//! A LAN of several nodes: a switch on this host, and each node in its own network namespace. The host is the LAN's
//! router, and runs the bridge. Owns the switch; the nodes' ends are [`Uplink`]s.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::uplink::{Uplink, ip};

/// Number of LANs of this process so far.
static COUNT: AtomicU8 = AtomicU8::new(0);

/// Removed with all its links when it is dropped.
pub struct Lan {
    switch: String,
    net: u8,
}

impl Lan {
    /// # Panics
    /// This host does not allow creating links.
    #[must_use]
    pub fn new() -> Self {
        let pid = std::process::id();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let net = u8::try_from((u32::from(count) * 83 + pid) % 250).unwrap_or_default();
        let lan = Self { switch: format!("smpl{}n{count}", pid % 100_000), net };
        ip(&["link", "add", &lan.switch, "type", "bridge"]);
        ip(&["addr", "add", &format!("{}/24", lan.address(1)), "dev", &lan.switch]);
        ip(&["link", "set", &lan.switch, "up"]);
        lan
    }

    /// Address of the router, at which the bridge listens.
    #[must_use]
    pub fn router(&self) -> IpAddr {
        self.address(1).into()
    }

    /// Connects a node at the address that ends with this number.
    #[must_use]
    pub fn place(&self, number: u8) -> Rc<Uplink> {
        Rc::new(Uplink::on_a_lan(&self.switch, self.address(number), self.address(1)))
    }

    /// The address that ends with this number.
    #[must_use]
    pub fn address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 214, self.net, number)
    }
}

impl Default for Lan {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.switch]).output();
    }
}
