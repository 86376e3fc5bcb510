//! The text of the tables: which pods are isolated, and which traffic they may receive and send. Does not execute it.
//! Pure.
//!
//! One chain for packets from pods, and one after it for packets to pods. A packet between two pods of this node passes
//! both, and `accept` ends only one of them. Both see the addresses of pods themselves: after the translation of
//! Services and host ports on input, before masquerading on output. Traffic of the pod's own node bypasses them (hooks
//! output and input), as Kubernetes requires: the kubelet's probes, and the node's DNS.

mod lines;
mod rule;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use self::lines::{Line, Text};
use super::bounds::{RULES, TEXT};
use super::choose::in_force;
use super::neighbours;
use super::peers::{LocalPod, Others};
use super::view::{Policy, Rule};
use super::world::{Name, World, family, remove, table};
use crate::net::Subnet;
use crate::pod::ports::Protocol;

/// Longest name of a chain, with room to spare (`NFT_CHAIN_MAXNAMELEN`).
const NAME_LIMIT: usize = 110;

/// What the kernel is to hold.
#[derive(Debug)]
pub struct Tables {
    /// Script for `nft -f -`: replaces the tables, in one transaction.
    pub script: String,
    /// The same for the table that keeps neighbours from going around it, which not every kernel can have.
    pub neighbours: String,
    /// Name of a chain of each family by which a daemon that starts sees that this is there.
    pub mark: String,
    /// Policies that let nothing through because they are not understood or too large, and why.
    pub denied: BTreeMap<Name, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    In,
    Out,
}

/// Returns the tables; `None` if no pod is isolated.
pub fn tables(world: &World<'_>) -> Option<Tables> {
    let others = Others::new(world.others.values().flat_map(|peers| &peers.pods), world.node);
    let (chosen, mut denied) = in_force(world);
    let mut script = String::new();
    let mut isolated = [BTreeSet::new(), BTreeSet::new()];
    for subnet in world.subnets {
        let mut family = Family::new(world, &others, *subnet, &mut denied);
        chosen.iter().for_each(|(pod, policies)| family.isolate(pod, policies));
        for (all, own) in isolated.iter_mut().zip(&family.isolated) {
            all.extend(own.keys().copied());
        }
        script.push_str(&family.text());
    }
    if isolated.iter().all(BTreeSet::is_empty) {
        return None;
    }
    let neighbours = neighbours::text(world, &isolated[0], &isolated[1]);
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{script}{neighbours}").as_bytes());
    let id: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let mark = format!("state-{id}");
    let (name, families) = (table(world.bridge), world.subnets.iter().map(|subnet| !subnet.is_ipv4()));
    for ip in families.clone().map(family) {
        let _ = writeln!(script, "add table {ip} {name}\nadd chain {ip} {name} {mark}");
    }
    let script = remove(world.bridge, &families.collect::<Vec<_>>()) + &script;
    Some(Tables { script, neighbours, mark, denied })
}

/// A policy, a direction, and the resolved named ports, if it has any.
type Key<'a> = (&'a Name, Way, Option<&'a [(String, Protocol, u16)]>);

/// The table of one family.
struct Family<'a, 'b> {
    world: &'b World<'a>,
    others: &'b Others<'a>,
    subnet: Subnet,
    v6: bool,
    /// Sets by their specification.
    sets: BTreeMap<String, usize>,
    /// Chains of policies: name and rules; `None` if they let nothing through.
    chains: BTreeMap<Key<'b>, Option<(String, String)>>,
    /// Chains of pods with the same policies, by their rules.
    groups: BTreeMap<String, usize>,
    /// Where pods' addresses lead: in, and out.
    isolated: [BTreeMap<IpAddr, usize>; 2],
    size: usize,
    rules: usize,
    denied: &'b mut BTreeMap<Name, String>,
}

impl<'a, 'b> Family<'a, 'b> {
    fn new(
        world: &'b World<'a>,
        others: &'b Others<'a>,
        subnet: Subnet,
        denied: &'b mut BTreeMap<Name, String>,
    ) -> Self {
        let (sets, chains, groups, isolated) = Default::default();
        Self { world, others, subnet, v6: !subnet.is_ipv4(), sets, chains, groups, isolated, size: 0, rules: 0, denied }
    }

    fn isolate(&mut self, pod: &'b LocalPod, policies: &[(&'b Name, &'b Policy)]) {
        let Some(ip) = pod.ips.iter().copied().find(|ip| ip.is_ipv6() == self.v6) else { return };
        for way in [Way::In, Way::Out] {
            let of_way = policies.iter().filter_map(|(name, policy)| Some((*name, policy.rules(way)?)));
            let of_way: Vec<_> = of_way.collect();
            if of_way.is_empty() {
                continue;
            }
            let mut rules = String::new();
            if way == Way::In {
                // Behind the bridge are only pods of this node, none of another one.
                let (bridge, ip, subnet) = (self.world.bridge, family(self.v6), self.subnet);
                let _ = writeln!(rules, "iifname \"{bridge}\" {ip} saddr != {subnet} drop");
            }
            for (name, of_policy) in of_way {
                if let Some(chain) = self.chain(name, way, of_policy, pod) {
                    let _ = writeln!(rules, "jump {chain}");
                }
            }
            rules.push_str("drop\n");
            let next = self.groups.len();
            let group = *self.groups.entry(rules).or_insert(next);
            if let Some(isolated) = self.isolated.get_mut(way as usize) {
                isolated.insert(ip, group);
            }
        }
    }

    /// The chain of a policy; none if it lets nothing through.
    fn chain(&mut self, name: &'b Name, way: Way, rules: &'b [Rule], pod: &'b LocalPod) -> Option<String> {
        let own = (way == Way::In).then_some(pod.ports.as_slice());
        let names = rules.iter().flat_map(|rule| rule.ports.iter().flatten()).any(|port| port.is_named());
        let key: Key<'b> = (name, way, own.filter(|_| names));
        if let Some(known) = self.chains.get(&key) {
            return known.as_ref().map(|(name, _)| name.clone());
        }
        let mut text = Text::default();
        let written = rules.iter().try_for_each(|rule| self.rule(way, rule, own, &mut text));
        let written = match written {
            Ok(()) if self.size + text.size > TEXT || self.rules + text.lines.len() > RULES => {
                Err("policies need more room than the node gives them")
            }
            other => other,
        };
        let made = match written {
            Err(why) => {
                self.denied.insert(name.clone(), why.to_owned());
                None
            }
            Ok(()) if text.lines.is_empty() => None,
            Ok(()) => {
                self.size += text.size;
                self.rules += text.lines.len();
                Some((chain_name(self.chains.len(), name), self.take(text)))
            }
        };
        let chain = made.as_ref().map(|(name, _)| name.clone());
        self.chains.insert(key, made);
        chain
    }

    /// The lines of a policy, with names for the sets that they ask.
    fn take(&mut self, text: Text) -> String {
        let mut rules = String::new();
        for Line { before, set, after } in text.lines {
            let set = set.map(|set| {
                let next = self.sets.len();
                format!("@set-{} ", self.sets.entry(set).or_insert(next))
            });
            let _ = writeln!(rules, "{before}{}{after}accept", set.unwrap_or_default());
        }
        rules
    }
}

/// Unique by its number; for people the policy's name, if nothing in it means anything to nft.
fn chain_name(number: usize, (namespace, name): &Name) -> String {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    let mut text = format!("policy-{number}");
    if plain(namespace) && plain(name) {
        text.push_str(&format!("-{namespace}/{name}"));
    }
    text.truncate(NAME_LIMIT);
    text
}

impl Policy {
    fn rules(&self, way: Way) -> Option<&[Rule]> {
        match way {
            Way::In => self.ingress.as_deref(),
            Way::Out => self.egress.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests;
