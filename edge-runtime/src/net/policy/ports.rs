//! Ports of a rule as nft asks for them. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::view::Port;
use crate::net::services::view::{TargetPort, protocol};
use crate::pod::ports::Protocol;
use crate::sys::sort::sort;

/// Resolved ports of a rule, for a pod.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// Ranges of numbers by protocol; `None` means all.
    numbers: BTreeMap<Protocol, Option<Vec<(u16, u16)>>>,
    /// Named ports, whose number differs between pods.
    pub(super) named: Vec<(String, Protocol)>,
}

impl Ports {
    /// Names are looked up in `own` if that is given. What no kernel knows is left out.
    pub(super) fn new(ports: &[Port], own: Option<&[(String, Protocol, u16)]>) -> Self {
        let mut all = Self::default();
        for port in ports {
            let Some(protocol) = protocol(&port.protocol) else { continue };
            match (&port.port, own) {
                (None, _) if port.end_port.is_none() => drop(all.numbers.insert(protocol, None)),
                (None | Some(TargetPort::Number(0)), _) => {}
                (Some(TargetPort::Number(number)), _) => all.add(protocol, *number, port.end_port.unwrap_or(*number)),
                (Some(TargetPort::Name(_)), _) if port.end_port.is_some() => {}
                (Some(TargetPort::Name(name)), None) => all.named.push((name.clone(), protocol)),
                (Some(TargetPort::Name(name)), Some(own)) => {
                    let found =
                        own.iter().filter(|(other, of, number)| other == name && *of == protocol && *number != 0);
                    found.for_each(|(_, _, number)| all.add(protocol, *number, *number));
                }
            }
        }
        all
    }

    fn add(&mut self, protocol: Protocol, from: u16, to: u16) {
        if let Some(ranges) = self.numbers.entry(protocol).or_insert_with(|| Some(Vec::new()))
            && from <= to
        {
            ranges.push((from, to));
        }
    }

    /// A match for each protocol.
    pub(super) fn matches(&self) -> Vec<String> {
        let of = |(protocol, ranges): (&Protocol, &Option<Vec<(u16, u16)>>)| match ranges {
            None => Some(format!("meta l4proto {protocol} ")),
            Some(ranges) if ranges.is_empty() => None,
            Some(ranges) => Some(format!("{protocol} dport {{ {} }} ", list(ranges))),
        };
        self.numbers.iter().filter_map(of).collect()
    }
}

/// Sorts and merges ranges that touch or overlap: `nft` refuses overlaps.
fn list(ranges: &[(u16, u16)]) -> String {
    let mut sorted = ranges.to_vec();
    sort(&mut sorted);
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (from, to) in sorted {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    let mut text = String::new();
    for (index, (from, to)) in merged.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = if from == to { write!(text, "{comma}{from}") } else { write!(text, "{comma}{from}-{to}") };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json};

    fn ports(ports: Value, own: Option<&[(String, Protocol, u16)]>) -> Ports {
        Ports::new(&Vec::<Port>::deserialize(ports).unwrap(), own)
    }

    #[test]
    fn numbers_ranges_and_protocols() {
        let all = json!([{"port": 80}, {"port": 443, "protocol": "TCP"}, {"port": 79}, {"port": 8000, "endPort": 9000},
            {"port": 8500, "endPort": 9500}, {"port": 53, "protocol": "UDP"}, {"protocol": "SCTP"}]);
        let wanted = ["tcp dport { 79-80, 443, 8000-9500 } ", "udp dport { 53 } ", "meta l4proto sctp "];
        assert_eq!(ports(all, None).matches(), wanted);
        assert_eq!(ports(json!([{"port": 1, "endPort": 65535}]), None).matches(), ["tcp dport { 1-65535 } "]);
        assert_eq!(ports(json!([{"port": 80}, {}]), None).matches(), ["meta l4proto tcp "]);
        assert_eq!(ports(json!([{}, {"port": 80}]), None).matches(), ["meta l4proto tcp "]);
    }

    #[test]
    fn names_are_the_pods_and_nonsense_is_nothing() {
        let own = [("http".to_owned(), Protocol::Tcp, 8080), ("http".to_owned(), Protocol::Udp, 9)];
        assert_eq!(ports(json!([{"port": "http"}]), Some(&own)).matches(), ["tcp dport { 8080 } "]);
        let far = ports(json!([{"port": "http"}]), None);
        assert_eq!((far.matches().len(), far.named), (0, vec![("http".to_owned(), Protocol::Tcp)]));
        for nothing in [
            json!([]),
            json!([{"port": "none"}]),
            json!([{"port": 80, "protocol": "ICMP"}]),
            json!([{"port": 0}]),
            json!([{"port": 80, "endPort": 79}]),
            json!([{"endPort": 79}]),
            json!([{"port": "http", "endPort": 9000}]),
        ] {
            assert!(ports(nothing.clone(), Some(&own)).matches().is_empty(), "{nothing}");
        }
    }
}
