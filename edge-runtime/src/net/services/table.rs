//! The Services in the kernel, and the script from there to the desired state: only the changes, in one transaction.
//! Pure.

mod change;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use self::steps::Steps;
use super::super::Subnet;
use super::frame::frame;
use super::item::{Element, Item, TRANSACTION, What, family, table};
use super::node_ports::NodePorts;

/// Namespace and name.
pub type ServiceName = (String, String);

/// The tables of one node, one of each family.
#[derive(Debug)]
pub struct Tables {
    bridge: String,
    subnets: Vec<Subnet>,
    node_ports: NodePorts,
    services: BTreeMap<ServiceName, BTreeMap<Item, u64>>,
    /// Owners of elements. While a Service takes over an element of another one, it waits until the other releases it.
    owners: BTreeMap<(bool, Element), Owner>,
    /// Services that may now have what another one had: to be made once more.
    heirs: BTreeSet<ServiceName>,
    /// Pods of this node with an address, and whether they reach each other without the host.
    pods: BTreeMap<IpAddr, bool>,
    /// All hashes, taken together: the name of an empty chain, by which a daemon that starts sees what is there.
    sum: u64,
    /// Empty by now, but a kernel before 6.2 may still hold them for a moment.
    stale: BTreeSet<Item>,
    /// The tables exist in the kernel.
    there: bool,
}

#[derive(Debug)]
struct Owner {
    holder: ServiceName,
    others: BTreeSet<ServiceName>,
}

/// A step towards what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Script for `nft -f -`; one transaction.
    pub script: String,
}

/// The complete desired state.
#[derive(Debug, Default)]
pub struct Wanted {
    pub services: BTreeMap<ServiceName, BTreeMap<Item, String>>,
    pub pods: BTreeMap<IpAddr, bool>,
}

impl Tables {
    pub fn new(bridge: &str, subnets: &[Subnet]) -> Self {
        Self {
            bridge: bridge.to_owned(),
            subnets: subnets.to_vec(),
            node_ports: NodePorts::default(),
            services: BTreeMap::new(),
            owners: BTreeMap::new(),
            heirs: BTreeSet::new(),
            pods: BTreeMap::new(),
            sum: 0,
            stale: BTreeSet::new(),
            there: false,
        }
    }

    /// `true` for IPv6.
    pub fn families(&self) -> Vec<bool> {
        self.subnets.iter().map(|subnet| !subnet.is_ipv4()).collect()
    }

    /// Sets the addresses of node ports; returns whether they have changed and everything must be written again.
    pub fn set_node_ports(&mut self, ports: NodePorts) -> bool {
        let changed = self.node_ports != ports;
        self.node_ports = ports;
        changed
    }

    /// Whether the node itself answers its pods there.
    pub fn is_gateway(&self, ip: IpAddr) -> bool {
        self.subnets.iter().any(|subnet| subnet.gateway() == ip)
    }

    /// The kernel may hold anything: the next change says everything again.
    pub fn forget(&mut self) {
        self.there = false;
    }

    /// Whether there is something in the kernel, for all that is known.
    pub fn is_there(&self) -> bool {
        self.there
    }

    /// Names of the chains by which `nft list chain` tells whether the kernel holds what this is: family and name.
    pub fn marks(&self) -> Vec<(&'static str, String)> {
        self.families().into_iter().map(|v6| (family(v6), mark(self.sum))).collect()
    }

    /// The script that replaces whatever the kernel holds by `wanted`; the tables count as written.
    pub fn replace(&mut self, wanted: &Wanted) -> Change {
        let node_ports = std::mem::take(&mut self.node_ports);
        *self = Self { node_ports, ..Self::new(&self.bridge, &self.subnets) };
        self.there = true;
        let frames: String = self.subnets.iter().map(|subnet| frame(&self.bridge, *subnet, &self.node_ports)).collect();
        // A frame of an older build, or of another configuration, is not adopted.
        self.sum = hash(&frames, "");
        let script = remove(&self.bridge, &self.families()) + &frames;
        let mut steps = Steps::default();
        for (name, items) in &wanted.services {
            self.take_service(name, items, &mut steps);
        }
        self.take_pods(&wanted.pods, &mut steps);
        self.finish(script, steps, None)
    }

    /// Returns the change of [`Tables::replace`] without recording it.
    pub fn whole(&self, wanted: &Wanted) -> Change {
        self.like().replace(wanted)
    }

    /// Without anything in the kernel.
    pub fn like(&self) -> Self {
        Self { node_ports: self.node_ports.clone(), ..Self::new(&self.bridge, &self.subnets) }
    }

    /// Same as [`Tables::replace`], when the kernel already holds the state: no script.
    pub fn adopt(&mut self, wanted: &Wanted) {
        self.replace(wanted);
    }

    /// The script for these Services (without items: deleted) and pods; `None` if nothing changes. The change counts as
    /// written.
    pub fn change(
        &mut self,
        services: &BTreeMap<ServiceName, BTreeMap<Item, String>>,
        pods: &BTreeMap<IpAddr, bool>,
    ) -> Option<Change> {
        let before = self.sum;
        let mut steps = Steps::default();
        for (name, items) in services {
            self.take_service(name, items, &mut steps);
        }
        self.take_pods(pods, &mut steps);
        (!steps.is_empty()).then(|| self.finish(String::new(), steps, Some(before)))
    }

    /// Deletes objects that an earlier change has emptied, as many as fit one transaction; `None` without any.
    pub fn sweep(&mut self) -> Option<Change> {
        let mut script = String::new();
        // Chains first: they name sets.
        for item in std::iter::from_fn(|| self.stale.pop_last()).take(TRANSACTION) {
            let (ip, table) = (family(item.v6), table(&self.bridge));
            let (kind, name) = match &item.what {
                What::Chain(name) => ("chain", name),
                What::Set(name) => ("set", name),
                What::Element(_) => continue,
            };
            let _ = writeln!(script, "delete {kind} {ip} {table} {name}");
        }
        (!script.is_empty()).then_some(Change { script })
    }

    /// How many items a Service has in the kernel.
    pub fn size(&self, name: &ServiceName) -> usize {
        self.services.get(name).map_or(0, BTreeMap::len)
    }

    /// Services that must be part of the next change in any case.
    pub fn take_heirs(&mut self) -> BTreeSet<ServiceName> {
        std::mem::take(&mut self.heirs)
    }
}

/// Commands that delete the tables, even if they do not exist.
pub fn remove(bridge: &str, families: &[bool]) -> String {
    let table = table(bridge);
    let of = |v6: &bool| format!("add table {0} {table}\ndelete table {0} {table}\n", family(*v6));
    families.iter().map(of).collect()
}

fn mark(sum: u64) -> String {
    format!("state-{sum:016x}")
}

fn hash(one: &impl Hash, other: &(impl Hash + ?Sized)) -> u64 {
    // Always the same keys; over builds it may differ, which costs one replacement.
    let mut hasher = DefaultHasher::new();
    one.hash(&mut hasher);
    other.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
