//! What decides about the tables, and their names. Values only.

use std::collections::BTreeMap;

use super::peers::LocalPod;
use super::view::{Peers, Policy};
use crate::net::Subnet;

/// Namespace and name.
pub type Name = (String, String);

/// What decides.
pub struct World<'a> {
    pub bridge: &'a str,
    /// The bridge's hardware address.
    pub mac: [u8; 6],
    pub subnets: &'a [Subnet],
    /// This node's name.
    pub node: &'a str,
    pub policies: &'a BTreeMap<Name, Policy>,
    pub others: &'a BTreeMap<Name, Peers>,
    pub pods: &'a [LocalPod],
}

/// Name of the table in each family.
pub fn table(bridge: &str) -> String {
    format!("policies-{bridge}")
}

/// Commands that delete the tables, even if they do not exist.
pub fn remove(bridge: &str, families: &[bool]) -> String {
    let table = table(bridge);
    let of = |v6: &bool| format!("add table {0} {table}\ndelete table {0} {table}\n", family(*v6));
    families.iter().map(of).collect()
}

/// Commands that delete the neighbours' table.
pub fn remove_neighbours(bridge: &str) -> String {
    let table = table(bridge);
    format!("add table bridge {table}\ndelete table bridge {table}\n")
}

/// `ip` or `ip6`.
pub fn family(v6: bool) -> &'static str {
    if v6 { "ip6" } else { "ip" }
}
