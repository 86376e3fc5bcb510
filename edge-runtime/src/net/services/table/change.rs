//! From the recorded state to another one: the lines of a change, which counts as written. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use super::steps::Steps;
use super::{Change, Owner, ServiceName, Tables, hash, mark};
use crate::net::services::item::{Item, What, family, table};
use crate::sys::gather::Gather;

impl Tables {
    pub(super) fn take_service(&mut self, name: &ServiceName, items: &BTreeMap<Item, String>, steps: &mut Steps) {
        let old = self.services.remove(name).unwrap_or_default();
        let new: BTreeMap<Item, u64> =
            items.iter().map(|(item, text)| (item.clone(), hash(&(name, item), text.as_str()))).into_map();
        for (item, value) in &old {
            if new.get(item) != Some(value) {
                self.sum ^= value;
            }
            if !new.contains_key(item) {
                self.leave(name, item, steps);
            }
        }
        for (item, value) in &new {
            let known = old.get(item);
            if known == Some(value) {
                continue;
            }
            self.sum ^= value;
            let text = items.get(item).map_or("", String::as_str);
            match &item.what {
                What::Set(_) | What::Chain(_) => {
                    self.stale.remove(item);
                    steps.put(item, text, known.is_some());
                }
                What::Element(element) => match self.owners.get_mut(&(item.v6, *element)) {
                    None => {
                        let owner = Owner { holder: name.clone(), others: BTreeSet::new() };
                        self.owners.insert((item.v6, *element), owner);
                        steps.element(item, *element, None, Some(text));
                    }
                    Some(owner) if owner.holder == *name => steps.element(item, *element, Some(()), Some(text)),
                    Some(owner) => drop(owner.others.insert(name.clone())),
                },
            }
        }
        if !new.is_empty() {
            self.services.insert(name.clone(), new);
        }
    }

    fn leave(&mut self, name: &ServiceName, item: &Item, steps: &mut Steps) {
        match &item.what {
            What::Set(_) | What::Chain(_) => {
                steps.empty(item);
                self.stale.insert(item.clone());
            }
            What::Element(element) => {
                let key = (item.v6, *element);
                if self.owners.get_mut(&key).is_some_and(|owner| owner.holder != *name && owner.others.remove(name)) {
                    return;
                }
                let Some(owner) = self.owners.remove(&key) else { return };
                steps.element(item, *element, Some(()), None);
                for heir in owner.others {
                    if let Some(value) = self.services.get_mut(&heir).and_then(|items| items.remove(item)) {
                        self.sum ^= value;
                    }
                    self.heirs.insert(heir);
                }
            }
        }
    }

    pub(super) fn take_pods(&mut self, pods: &BTreeMap<IpAddr, bool>, steps: &mut Steps) {
        let mut set = |verb: &'static str, ip: &IpAddr, onlink: bool| {
            let line = |set: &str, key: String| (ip.is_ipv6(), format!("{set} {{ {key} }}"));
            let lines = if verb == "add" { &mut steps.added } else { &mut steps.deleted };
            lines.push(line("hairpins", format!("{ip} . {ip}")));
            if onlink {
                lines.push(line("onlink-pods", ip.to_string()));
            }
        };
        let families = self.families();
        let usable: BTreeMap<IpAddr, bool> = pods
            .iter()
            .filter(|(ip, _)| families.contains(&ip.is_ipv6()))
            .map(|(ip, onlink)| (*ip, *onlink))
            .into_map();
        for (ip, onlink) in &self.pods {
            if usable.get(ip) != Some(onlink) {
                self.sum ^= hash(ip, onlink);
                set("delete", ip, *onlink);
            }
        }
        for (ip, onlink) in &usable {
            if self.pods.get(ip) != Some(onlink) {
                self.sum ^= hash(ip, onlink);
                set("add", ip, *onlink);
            }
        }
        self.pods = usable;
    }

    pub(super) fn finish(&self, mut script: String, steps: Steps, before: Option<u64>) -> Change {
        let bridge = table(&self.bridge);
        let Steps { sets, chains, deleted, rules, added, emptied } = steps;
        let mut lines = |verb: &str, lines: Vec<(bool, String)>| {
            for (v6, line) in lines {
                let _ = match line.split_once(' ') {
                    Some((name, rest)) => writeln!(script, "{verb} {} {bridge} {name} {rest}", family(v6)),
                    None => writeln!(script, "{verb} {} {bridge} {line}", family(v6)),
                };
            }
        };
        lines("add set", sets);
        let (new, known): (Vec<_>, Vec<_>) = chains.into_iter().partition(|(_, _, known)| !known);
        let named = |all: Vec<(bool, String, bool)>| all.into_iter().map(|(v6, name, _)| (v6, name)).collect();
        lines("add chain", named(new));
        lines("flush chain", named(known));
        lines("delete element", deleted);
        lines("add rule", rules);
        lines("add element", added);
        lines("flush chain", emptied);
        if before != Some(self.sum) {
            let of = |sum: u64| self.families().into_iter().map(|v6| (v6, mark(sum))).collect();
            if let Some(before) = before {
                lines("delete chain", of(before));
            }
            lines("add chain", of(self.sum));
        }
        Change { script }
    }
}
