//! The built-in pod network: one bridge per node, one veth pair per pod, masquerade for what leaves the node.
//!
//! Every call converges: it may be repeated after a crash at any point. Knows nothing of leases and containers.

mod pods;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc;

use super::namespaces::OwnNetwork;
use super::netlink::{Socket, address, link};
use super::settings::NetworkSettings;
use super::{NetError, Subnet, firewall, policy, services, sysctl};
use crate::pod::ports::Forward;

/// Prefix of the host's ends of veth pairs.
const HOST_LINK: &str = "veth";
/// Kernel limit of a link's name (`IFNAMSIZ` without its zero).
const NAME_LIMIT: usize = 15;
/// Ethernet's, while nothing better is known.
const DEFAULT_MTU: u32 = 1500;
/// IPv6 works with no less.
const LEAST_MTU: u32 = 1280;
/// Maximum MTU of a veth; with loopback as uplink the value would be larger.
const MOST_MTU: u32 = 65_535;
/// Pods that are connected within this time of each other get the same MTU: asking for it takes four exchanges.
const MTU_AGE: Duration = Duration::from_secs(1);

/// The bridge network of one node.
#[derive(Debug)]
pub struct Network {
    settings: NetworkSettings,
    own: OwnNetwork,
    socket: Socket,
    /// The `nft` program.
    nft: PathBuf,
    /// Link index of the bridge, once `ensure` has run.
    bridge: Option<u32>,
    /// The MTU of the last pod that asked for it, and when that was.
    pods_mtu: Option<(Instant, u32)>,
}

impl Network {
    /// Checks the settings and opens the netlink socket; changes nothing.
    pub fn new(settings: NetworkSettings) -> Result<Self, NetError> {
        let name = &settings.bridge;
        let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_LIMIT || !name.chars().all(usable) || name.starts_with('.') {
            return Err(NetError::BridgeName { name: name.clone() });
        }
        let socket = Socket::open().map_err(|source| NetError::namespace("open netlink socket", source))?;
        Ok(Self { settings, own: OwnNetwork::open()?, socket, nft: PathBuf::from("nft"), bridge: None, pods_mtu: None })
    }

    /// The `nft` program.
    pub fn nft(&self) -> &Path {
        &self.nft
    }

    /// Name of the host's end of a pod's link.
    pub fn link_of(&self, uid: &str) -> String {
        link_name(&self.settings.bridge, uid)
    }

    pub fn settings(&self) -> &NetworkSettings {
        &self.settings
    }

    /// From now on the rules let packets between pods and these ranges pass as they are; whether that is a change.
    pub fn set_neighbours(&mut self, ranges: Vec<Subnet>) -> bool {
        let changed = self.settings.neighbours.as_ref() != Some(&ranges);
        self.settings.neighbours = Some(ranges);
        changed
    }

    /// Creates the bridge, its addresses and forwarding. Called once at start; the result has warnings for the user.
    ///
    /// # Errors
    /// The kernel refuses, or supports none of the configured families.
    pub fn ensure(&mut self) -> Result<Vec<String>, NetError> {
        let mut warnings = Vec::new();
        if self.settings.subnets.is_empty() {
            return Ok(warnings);
        }
        if let Some(why) = sysctl::without_ipv6() {
            let (v4, v6): (Vec<Subnet>, Vec<Subnet>) = self.settings.subnets.iter().partition(|one| one.is_ipv4());
            match v6.first() {
                Some(subnet) if v4.is_empty() => return Err(NetError::NoFamily { subnet: *subnet, why }),
                Some(subnet) => warnings.push(format!("pods get no address of {subnet}: {why}")),
                None => {}
            }
            self.settings.subnets = v4;
        }
        let index = self.ensure_bridge()?;
        self.bridge = Some(index);
        for subnet in self.settings.subnets.clone() {
            sysctl::forward(subnet.is_ipv4())?;
        }
        self.ensure_gateways(index)?;
        Ok(warnings)
    }

    /// What replaces this node's nft rules; `forwards` are all host ports that lead into pods.
    pub fn firewall(&self, forwards: &[Forward]) -> firewall::Replacement {
        firewall::Replacement::new(&self.nft, &self.settings, forwards)
    }

    /// Applies [`Network::firewall`] at the start.
    pub fn firewall_at_start(
        &self,
        forwards: &[Forward],
    ) -> impl Future<Output = Result<(), NetError>> + use<> + 'static {
        let only_v4 = self.settings.subnets.iter().all(|subnet| subnet.is_ipv4());
        let (rules, nft, bridge) = (self.firewall(forwards), self.nft.clone(), self.settings.bridge.clone());
        async move {
            rules.apply().await?;
            if only_v4 {
                firewall::remove_v6(&nft, &bridge).await;
            }
            Ok(())
        }
    }

    fn ensure_bridge(&mut self) -> Result<u32, NetError> {
        let name = self.settings.bridge.clone();
        let mtu = self.mtu();
        let failed = |action, source| NetError::Netlink { action, object: format!("bridge {name}"), source };
        let found = link::by_name(&mut self.socket, &name).map_err(|source| failed("look up", source))?;
        let bridge = match found {
            Some(bridge) => bridge,
            None => {
                let made = link::add_bridge(&mut self.socket, &name, self.settings.hardware_address(), mtu);
                made.map_err(|source| unsupported(source, "bridge").unwrap_or_else(|source| failed("make", source)))?;
                link::named(&mut self.socket, &name).map_err(|source| failed("find", source))?
            }
        };
        if bridge.kind != "bridge" {
            return Err(NetError::NotABridge { name });
        }
        // Before the bridge is up: packets of pods must not configure the node.
        sysctl::keep_to_itself(&name, self.settings.subnets.iter().any(|subnet| !subnet.is_ipv4()))?;
        if bridge.mtu != mtu {
            link::set_mtu(&mut self.socket, bridge.index, mtu).map_err(|source| failed("set MTU of", source))?;
        }
        if !bridge.up {
            link::set_up(&mut self.socket, bridge.index).map_err(|source| failed("set up", source))?;
        }
        Ok(bridge.index)
    }

    /// The uplink's MTU, so that pods send no packets that the next hop cannot take; 1500 without an uplink.
    fn mtu(&mut self) -> u32 {
        let mut of = |far| {
            let route = address::route_towards(&mut self.socket, far).ok()??;
            let uplink = link::by_index(&mut self.socket, route.link?).ok()??;
            Some(uplink.mtu)
        };
        let uplink = address::FAR.into_iter().filter_map(&mut of).min();
        uplink.unwrap_or(DEFAULT_MTU).clamp(LEAST_MTU, MOST_MTU)
    }

    fn pods_mtu(&mut self) -> u32 {
        if let Some((asked, mtu)) = self.pods_mtu
            && asked.elapsed() < MTU_AGE
        {
            return mtu;
        }
        let mtu = self.mtu();
        self.pods_mtu = Some((Instant::now(), mtu));
        mtu
    }

    /// Gives the bridge the gateways' addresses and takes others, which a changed configuration left there.
    fn ensure_gateways(&mut self, index: u32) -> Result<(), NetError> {
        let wanted: Vec<_> = self.settings.subnets.iter().map(|subnet| (subnet.gateway(), subnet.prefix())).collect();
        let name = self.settings.bridge.clone();
        let failed = |action, source| NetError::Netlink { action, object: format!("address of {name}"), source };
        let all = address::list(&mut self.socket).map_err(|source| failed("list", source))?;
        let mine: Vec<_> = all.into_iter().filter(|found| found.index == index && found.global).collect();
        for old in mine.iter().filter(|found| !wanted.contains(&(found.address, found.prefix))) {
            address::delete(&mut self.socket, old).map_err(|source| failed("delete", source))?;
        }
        for (gateway, prefix) in wanted {
            if !mine.iter().any(|found| (found.address, found.prefix) == (gateway, prefix)) {
                address::add(&mut self.socket, index, gateway, prefix).map_err(|source| failed("set", source))?;
            }
        }
        Ok(())
    }

    /// Deletes links, bridge and nft table. Goes on after an error and returns the first one.
    pub fn teardown(&mut self) -> Result<(), NetError> {
        let links = self.cleanup(&BTreeSet::new()).map(drop);
        let name = self.settings.bridge.clone();
        let bridge = match link::by_name(&mut self.socket, &name) {
            // A link of that name that is not a bridge belongs to another program.
            Ok(Some(found)) if found.kind == "bridge" => link::delete(&mut self.socket, &name),
            other => other.map(drop),
        };
        self.bridge = None;
        let bridge =
            bridge.map_err(|source| NetError::Netlink { action: "delete", object: format!("bridge {name}"), source });
        let table = smol::block_on(async {
            if let Err(error) = services::apply::remove(self.nft.clone(), name.clone()).await {
                log::warn!("{error}");
            }
            if let Err(error) = policy::apply::clear(&self.nft, &name).await {
                log::warn!("{error}");
            }
            firewall::forward::remove(&self.nft, &name).await;
            firewall::remove(&self.nft, &name).await
        });
        links.and(bridge).and(table)
    }
}

/// Detects that the kernel does not support links of this kind and could not load a module for them.
fn unsupported(error: io::Error, kind: &'static str) -> Result<NetError, io::Error> {
    if error.raw_os_error() == Some(libc::EOPNOTSUPP) { Ok(NetError::NoKernelSupport { kind }) } else { Err(error) }
}

/// Host end of a pod's pair: `veth` and 44 bits of a hash over bridge and uid, so that nodes sharing a host (and
/// perhaps a static pod's uid) do not collide. FNV-1a: stable over builds.
fn link_name(bridge: &str, uid: &str) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in bridge.bytes().chain([b'/']).chain(uid.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{HOST_LINK}{:011x}", hash >> 20)
}

#[cfg(test)]
mod tests;
