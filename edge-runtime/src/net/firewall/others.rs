//! Base chains of other firewalls, as `nft` lists them, and whether they let this node's pods through. Pure.
//!
//! They are found by their hook: names and families differ (Docker and ufw: `ip filter FORWARD` and the like in `ip6`;
//! Debian's nftables.conf: `inet filter forward`; firewalld: `inet firewalld filter_FORWARD`).

use std::collections::BTreeSet;

use crate::sys::gather::Gather;
use crate::sys::vec_map::VecMap;

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

/// The lines of each chain.
fn chains(listed: &str) -> VecMap<&str, Vec<&str>> {
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("chain ")?.split_whitespace().next());
    // kube-proxy makes thousands, in no order: sorted first, each goes to the map's end.
    let mut chains: VecMap<&str, Vec<&str>> = names.into_set().into_iter().map(|name| (name, Vec::new())).collect();
    let mut chain = None;
    for line in listed.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("chain ") {
            chain = rest.split_whitespace().next();
        } else if line == "}" {
            chain = None;
        } else if let Some(lines) = chain.and_then(|name| chains.get_mut(name)) {
            lines.push(line);
        }
    }
    chains
}

/// The hook of a base chain, and whether its policy is to drop.
fn hook_of(line: &str) -> Option<(Hook, bool)> {
    let rest = line.strip_prefix("type filter hook ")?;
    let hook = match rest.split_whitespace().next()? {
        "forward" => Hook::Forward,
        "input" => Hook::Input,
        _ => return None,
    };
    Some((hook, rest.contains("policy drop")))
}

/// A rule without a condition that ends all that came so far.
fn is_refusal(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    if words.next_if_eq(&"counter").is_some() && words.next_if_eq(&"packets").is_some() {
        // Both numbers, and the word between.
        words.nth(2);
    }
    matches!(words.next(), Some("drop" | "reject"))
}

/// Whether a rule of the chain, or of one that it jumps to, concerns the bridge; for input also whether one concerns
/// DNS queries from everywhere.
fn lets_through(chain: &str, chains: &VecMap<&str, Vec<&str>>, hook: Hook, bridge: &str) -> bool {
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

impl Blocking {
    /// Returns the problem as text.
    pub fn what(&self) -> String {
        let Self { family, table, chain, .. } = self;
        match self.hook {
            Hook::Forward => format!("the firewall drops forwarded packets (chain {family} {table} {chain})"),
            Hook::Input => format!("the firewall drops what pods ask the node (chain {family} {table} {chain})"),
        }
    }

    /// What follows from it.
    pub fn why(&self) -> &'static str {
        match self.hook {
            Hook::Forward => "pods reach nothing beyond this node",
            Hook::Input => "pods find no names",
        }
    }

    /// The commands that let the bridge's pods through.
    pub fn remedy(&self, bridge: &str) -> String {
        let Self { family, table, chain, .. } = self;
        let insert =
            |side: &str, rest: &str| format!("nft insert rule {family} {table} {chain} {side} {bridge} {rest}accept");
        match (self.kind, self.hook) {
            (Kind::Ufw, Hook::Forward) => {
                format!("ufw route allow in on {bridge}; ufw route allow out on {bridge}")
            }
            (Kind::Ufw, Hook::Input) => format!("ufw allow in on {bridge}"),
            (Kind::Firewalld, _) => {
                format!("firewall-cmd --permanent --zone=trusted --add-interface={bridge}; firewall-cmd --reload")
            }
            (Kind::Plain, Hook::Forward) => {
                format!(
                    "{}; {} (and in the file from which the firewall reads its rules)",
                    insert("iifname", ""),
                    insert("oifname", "")
                )
            }
            (Kind::Plain, Hook::Input) => {
                let ports = "meta l4proto { tcp, udp } th dport 53 ";
                format!("{} (and in the file from which the firewall reads its rules)", insert("iifname", ports))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(family: &str, table: &str, listed: &str) -> Vec<(Hook, String)> {
        blocking(family, table, listed, "b0").into_iter().map(|one| (one.hook, one.remedy("b0"))).collect()
    }

    #[test]
    fn many_chains_do_not_hold_up_the_node() {
        let listed: String =
            (0..100_000).rev().map(|number| format!("\tchain {number:06} {{\n\t\taccept\n\t}}\n")).collect();
        let chains = chains(&listed);
        assert!(chains.len() == 100_000 && chains.values().all(|lines| *lines == ["accept"]));
        // Inserted as they come, they would move 200 GB, which takes longer than a suite may.
    }

    #[test]
    fn tables_are_found_by_the_hooks_of_their_chains() {
        let listed = "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n\
            table ip6 filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\t}\n}\n\
            table inet nat {\n\tchain x {\n\t\ttype nat hook input priority 0; policy accept;\n\t}\n\tchain y {\n\t}\n}\n\
            table ip services-b0 {\n\tchain filter-forward {\n\t\ttype filter hook forward priority filter; policy accept;\n\t}\n}\n\
            table bridge br {\n\tchain f {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n";
        let names = |v4, v6| tables(listed, "b0", v4, v6).into_iter().map(|(family, _)| family).collect::<Vec<_>>();
        assert_eq!(
            (names(true, true), names(true, false)),
            (vec!["ip".to_owned(), "ip6".into()], vec!["ip".to_owned()])
        );
    }

    #[test]
    fn a_policy_of_drop_blocks_until_a_rule_names_the_bridge() {
        let debian = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\
            \t\tct state established,related accept\n\t\tiifname \"lo\" accept\n\t}\n\
            \tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t\tjump more\n\t}\n\
            \tchain more {\n\t\tiifname \"b01\" accept\n\t}\n\
            \tchain output {\n\t\ttype filter hook output priority filter; policy accept;\n\t}\n}\n";
        let [(Hook::Forward, forward), (Hook::Input, input)] = &found("inet", "filter", debian)[..] else {
            panic!("both hooks")
        };
        assert!(forward.contains("nft insert rule inet filter forward iifname b0 accept"), "{forward}");
        assert!(input.contains("input iifname b0 meta l4proto { tcp, udp } th dport 53 accept"), "{input}");
        let passed = debian.replace("\"b01\" accept", "\"b0\" counter packets 0 bytes 0 accept comment \"x\"");
        assert_eq!(found("inet", "filter", &passed).len(), 1, "by a chain that it leads to");
        let named = debian.replace("\"b01\" accept", "\"b01\" accept comment \"not \\\"b0\\\"\"");
        assert_eq!(found("inet", "filter", &named).len(), 2, "a comment lets nobody through");
        for others in [
            "iifname != \"b0\" oifname != \"b0\" accept",
            "iifname != { \"b0\", \"b01\" } accept",
            "iif != \"b0\" jump x",
        ] {
            let others = debian.replace("iifname \"b01\" accept", others);
            assert_eq!(found("inet", "filter", &others).len(), 2, "it is about all others: {others}");
        }
        let one_side = debian.replace("iifname \"b01\" accept", "iifname \"b0\" oifname != \"b0\" accept");
        assert_eq!(found("inet", "filter", &one_side).len(), 1);
        let names = debian.replace("iifname \"lo\" accept\n", "udp dport { 22, 53 } accept\n");
        assert_eq!(found("inet", "filter", &names).len(), 1, "names are answered for everybody");
        assert!(found("inet", "filter", &debian.replace("policy drop", "policy accept")).is_empty());
    }

    #[test]
    fn final_reject_rule_counts_as_a_policy() {
        let firewalld = "table inet firewalld {\n\tchain filter_FORWARD {\n\
            \t\ttype filter hook forward priority filter + 10; policy accept;\n\t\tct state { established, related } accept\n\
            \t\tjump filter_FORWARD_ZONES\n\t\treject with icmpx admin-prohibited\n\t}\n\tchain filter_FORWARD_ZONES {\n\
            \t\tiifname \"eth0\" goto filter_FWD_public\n\t}\n}\n";
        let told = found("inet", "firewalld", firewalld);
        assert!(told[0].1.contains("--zone=trusted --add-interface=b0"), "{told:?}");
        assert!(found("inet", "firewalld", &firewalld.replace("eth0", "b0")).is_empty());
        assert!(
            found("inet", "firewalld", &firewalld.replace("reject with", "ip daddr 192.0.2.1 reject with")).is_empty()
        );
        let ufw = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\
            \t\tcounter packets 0 bytes 0 jump ufw-user-input\n\t\tcounter packets 12 bytes 800 drop\n\t}\n\
            \tchain ufw-user-input {\n\t}\n}\n";
        assert_eq!(found("ip", "filter", ufw)[0].1, "ufw allow in on b0");
        assert!(is_refusal("counter drop") && !is_refusal("tcp dport 80 drop"));
    }
}
