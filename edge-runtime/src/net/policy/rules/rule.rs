//! Lines of one rule of a policy: its peers and its ports. Pure.

use std::collections::BTreeSet;

use super::lines::{TOO_LARGE, Text, joined};
use super::{Family, Way};
use crate::net::policy::blocks::{Block, merged};
use crate::net::policy::bounds::{EXCEPTIONS, TEXT_OF_A_POLICY};
use crate::net::policy::ports::Ports;
use crate::net::policy::view::{Peer, Rule};
use crate::net::policy::world::family;
use crate::pod::ports::Protocol;

impl Family<'_, '_> {
    pub(super) fn rule(
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
}
