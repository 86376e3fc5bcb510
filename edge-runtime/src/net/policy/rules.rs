//! The text of the tables: which pods are isolated, and which traffic they may receive and send. Does not execute it.
//! Pure.
//!
//! One chain for packets from pods, and one after it for packets to pods. A packet between two pods of this node passes
//! both, and `accept` ends only one of them. Both see the addresses of pods themselves: after the translation of
//! Services and host ports on input, before masquerading on output. Traffic of the pod's own node bypasses them (hooks
//! output and input), as Kubernetes requires: the kubelet's probes, and the node's DNS.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use super::blocks::{Block, merged};
use super::bounds::{EXCEPTIONS, RULES, TEXT, TEXT_OF_A_POLICY};
use super::choose::in_force;
use super::neighbours;
use super::peers::{LocalPod, Others};
use super::ports::Ports;
use super::view::{Peer, Policy, Rule};
use super::world::{Name, World, family, remove, table};
use crate::net::Subnet;
use crate::pod::ports::Protocol;
use crate::sys::gather::Gather;

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

    fn rule(
        &self,
        way: Way,
        rule: &Rule,
        own: Option<&[(String, Protocol, u16)]>,
        text: &mut Text,
    ) -> Result<(), &'static str> {
        let ports = rule.ports.as_deref().map(|ports| Ports::new(ports, own));
        let matches = ports.as_ref().map_or_else(|| vec![String::new()], Ports::matches);
        let Some(peers) = &rule.peers else {
            return matches.into_iter().try_for_each(|ports| text.line(String::new(), None, ports));
        };
        let (ip, addr) = (family(self.v6), if self.v6 { "ipv6_addr" } else { "ipv4_addr" });
        let (end, v6) = (if way == Way::In { "saddr" } else { "daddr" }, self.v6);
        let (mut addresses, mut visited) = (BTreeSet::new(), 0);
        let (mut blocks, mut with_exceptions): (Vec<Block>, Vec<(Block, Vec<Block>)>) = Default::default();
        for peer in peers {
            match peer {
                Peer::Pods(peer) => {
                    let found = peer.addresses(self.world.pods, self.others, self.world.subnets, v6);
                    visited += found.len();
                    if visited > TEXT_OF_A_POLICY {
                        return Err(TOO_LARGE);
                    }
                    addresses.extend(found);
                }
                Peer::Block { block, .. } if block.is_v6() != v6 => {}
                Peer::Block { block, except } => {
                    let except: Vec<Block> = except.iter().filter(|one| one.is_v6() == v6).copied().collect();
                    if except.is_empty() {
                        blocks.push(*block);
                    } else {
                        with_exceptions.push((*block, merged(except)));
                    }
                }
            }
        }
        if with_exceptions.len() > EXCEPTIONS {
            return Err(TOO_LARGE);
        }
        let blocks = merged(blocks);
        let everywhere = blocks.iter().any(|block| block.is_all());
        for ports in matches {
            if everywhere {
                text.line(String::new(), None, ports)?;
                continue;
            }
            if !addresses.is_empty() {
                let set = format!("type {addr}; elements = {{ {} }}", joined(&addresses));
                text.line(format!("{ip} {end} "), Some(set), ports.clone())?;
            }
            if !blocks.is_empty() {
                let set = format!("type {addr}; flags interval; elements = {{ {} }}", joined(&blocks));
                text.line(format!("{ip} {end} "), Some(set), ports.clone())?;
            }
            for (block, except) in &with_exceptions {
                let inside = if block.is_all() { String::new() } else { format!("{ip} {end} {block} ") };
                if except.iter().any(|one| one.is_all()) {
                    continue;
                }
                let set = format!("type {addr}; flags interval; elements = {{ {} }}", joined(except));
                text.line(format!("{inside}{ip} {end} != "), Some(set), ports.clone())?;
            }
        }
        for named in ports.iter().flat_map(|ports| &ports.named) {
            let mut ends = BTreeSet::new();
            for peer in peers {
                if let Peer::Pods(peer) = peer {
                    let named = (named.0.as_str(), named.1);
                    ends.extend(peer.named(named, self.world.pods, self.others, (self.world.subnets, v6)));
                }
            }
            if !ends.is_empty() {
                let ends: Vec<String> = ends.iter().map(|(ip, port)| format!("{ip} . {port}")).collect();
                let set = format!("type {addr} . inet_service; elements = {{ {} }}", joined(&ends));
                let before = format!("meta l4proto {} {ip} daddr . th dport ", named.1);
                text.line(before, Some(set), String::new())?;
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        let (v6, world) = (self.v6, self.world);
        if self.isolated.iter().all(BTreeMap::is_empty) {
            return String::new();
        }
        let (ip, addr) = (family(v6), if v6 { "ipv6_addr" } else { "ipv4_addr" });
        let mut text = format!("table {ip} {} {{\n", table(world.bridge));
        for (set, number) in &self.sets {
            let _ = writeln!(text, "\tset set-{number} {{ {set}; }}");
        }
        let mut chain = |name: &str, rules: &str| {
            let _ = writeln!(text, "\tchain {name} {{");
            for rule in rules.lines() {
                let _ = writeln!(text, "\t\t{rule}");
            }
            text.push_str("\t}\n");
        };
        self.chains.values().flatten().for_each(|(name, rules)| chain(name, rules));
        self.groups.iter().for_each(|(rules, number)| chain(&format!("pods-{number}"), rules));
        // A pod reaches itself through a Service, whatever policies say.
        let own: BTreeSet<String> =
            self.isolated.iter().flat_map(BTreeMap::keys).map(|ip| format!("{ip} . {ip}")).into_set();
        let _ = writeln!(text, "\tset own {{ type {addr} . {addr}; elements = {{ {} }}; }}", joined(&own));
        let (bridge, subnet) = (world.bridge, self.subnet);
        for (name, end, priority, isolated) in ["in", "out"]
            .iter()
            .zip(["daddr", "saddr"])
            .zip([-5, -6])
            .zip(&self.isolated)
            .map(|(((n, e), p), i)| (n, e, p, i))
        {
            let to: Vec<String> = isolated.iter().map(|(ip, group)| format!("{ip} : goto pods-{group}")).collect();
            let elements = if to.is_empty() { String::new() } else { format!(" elements = {{ {} }};", joined(&to)) };
            let _ = writeln!(text, "\tmap isolated-{name} {{ type {addr} : verdict;{elements} }}");
            let _ = writeln!(
                text,
                "\tchain forward-{name} {{\n\t\ttype filter hook forward priority {priority}; policy accept;\n\
                 \t\tct state established,related accept"
            );
            if *name == "out" {
                // Addresses of this node's pods do not come from outside.
                let _ = writeln!(text, "\t\tiifname != \"{bridge}\" {ip} saddr {subnet} drop");
            }
            let _ =
                writeln!(text, "\t\t{ip} saddr . {ip} daddr @own accept\n\t\t{ip} {end} vmap @isolated-{name}\n\t}}");
        }
        text.push_str("}\n");
        text
    }
}

const TOO_LARGE: &str = "it is larger than a node takes";

/// Lines of a policy, as they grow.
#[derive(Default)]
struct Text {
    lines: Vec<Line>,
    size: usize,
}

struct Line {
    before: String,
    /// Specification of the set that is asked between the two.
    set: Option<String>,
    after: String,
}

impl Text {
    fn line(&mut self, before: String, set: Option<String>, after: String) -> Result<(), &'static str> {
        // Memory of a line beside its text.
        self.size += before.len() + after.len() + set.as_ref().map_or(0, String::len) + 40;
        if self.size > TEXT_OF_A_POLICY {
            return Err(TOO_LARGE);
        }
        self.lines.push(Line { before, set, after });
        Ok(())
    }
}

fn joined<'a, T: ToString + 'a>(all: impl IntoIterator<Item = &'a T>) -> String {
    let mut text = String::new();
    for one in all {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&one.to_string());
    }
    text
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
