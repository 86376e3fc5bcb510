//! Base chains of other firewalls, as `nft` lists them, and whether they let this node's pods through. Pure.
//!
//! They are found by their hook: names and families differ (Docker and ufw: `ip filter FORWARD` and the like in `ip6`;
//! Debian's nftables.conf: `inet filter forward`; firewalld: `inet firewalld filter_FORWARD`).

mod listing;
mod remedy;

use std::collections::BTreeSet;

use self::listing::{Chains, chains, hook_of, is_refusal};

/// Where packets of pods pass chains of other firewalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Packets between pods and other hosts.
    Forward,
    /// Packets from pods to the node: DNS queries.
    Input,
}

/// A chain that drops or rejects what no rule accepts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocking {
    pub hook: Hook,
    pub family: String,
    pub table: String,
    pub chain: String,
    kind: Kind,
}

/// The program that wrote the rule, if the remedy depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Plain,
    Ufw,
    Firewalld,
}

/// Family and name of the tables that have base chains on these hooks, by `nft list chains`; without this node's own.
pub fn tables(listed: &str, bridge: &str, v4: bool, v6: bool) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut table = None;
    for line in listed.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("table ") {
            let mut words = rest.split_whitespace();
            table = words.next().zip(words.next()).map(|(family, name)| (family.to_owned(), name.to_owned()));
        } else if hook_of(line).is_some() {
            found.extend(table.clone());
        }
    }
    let is_own = |name: &str| name.strip_suffix(bridge).is_some_and(|rest| rest.ends_with('-'));
    found.retain(|(family, name)| {
        !is_own(name) && (family == "inet" || (family == "ip" && v4) || (family == "ip6" && v6))
    });
    found
}

/// The chains of a table, by `nft list table`, that let nothing of the bridge's pods through.
pub fn blocking(family: &str, table: &str, listed: &str, bridge: &str) -> Vec<Blocking> {
    let chains = chains(listed);
    let kind = match () {
        () if table == "firewalld" => Kind::Firewalld,
        () if chains.keys().any(|chain| chain.starts_with("ufw")) => Kind::Ufw,
        () => Kind::Plain,
    };
    let mut found = Vec::new();
    for (name, lines) in chains.iter() {
        let Some((hook, drops)) = lines.iter().find_map(|line| hook_of(line)) else { continue };
        let ends = lines.last().is_some_and(|line| is_refusal(line));
        if (drops || ends) && !lets_through(name, &chains, hook, bridge) {
            let (family, table, chain) = (family.to_owned(), table.to_owned(), (*name).to_owned());
            found.push(Blocking { hook, family, table, chain, kind });
        }
    }
    found
}

/// Whether a rule of the chain, or of one that it jumps to, concerns the bridge; for input also whether one concerns
/// DNS queries from everywhere.
fn lets_through(chain: &str, chains: &Chains<'_>, hook: Hook, bridge: &str) -> bool {
    let (link, mut seen, mut next) = (format!("\"{bridge}\""), BTreeSet::new(), vec![chain]);
    while let Some(chain) = next.pop() {
        if !seen.insert(chain) {
            continue;
        }
        for line in chains.get(chain).into_iter().flatten() {
            let rule = line.split(" comment ").next().unwrap_or_default();
            let verdict = rule.split_whitespace().any(|word| matches!(word, "accept" | "jump" | "goto"));
            if verdict && (is_about(rule, &link) || (hook == Hook::Input && is_for_names(rule))) {
                return true;
            }
            let words = rule.split_whitespace();
            next.extend(
                words.clone().zip(words.skip(1)).filter(|(word, _)| ["jump", "goto"].contains(word)).map(|(_, to)| to),
            );
        }
    }
    false
}

/// Whether a rule names the link other than by exclusion (`iifname != "b0"`).
fn is_about(rule: &str, link: &str) -> bool {
    rule.match_indices(link).any(|(at, _)| {
        let before = rule.get(..at).unwrap_or_default();
        let side = ["iifname ", "oifname ", "iif ", "oif "].iter().filter_map(|side| before.rfind(side)).max();
        !before.get(side.unwrap_or_default()..).unwrap_or_default().contains("!=")
    })
}

fn is_for_names(rule: &str) -> bool {
    let Some((before, ports)) = rule.split_once("dport ") else { return false };
    let ports = ports.trim_start_matches('{').split(|c: char| !c.is_ascii_alphanumeric());
    !before.contains("iif") && ports.clone().any(|port| matches!(port, "53" | "domain"))
}

#[cfg(test)]
mod tests;
