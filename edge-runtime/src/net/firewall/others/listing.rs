//! Listings of `nft`: chains with their lines, hooks and final rules.

use super::Hook;
use crate::sys::gather::Gather;
use crate::sys::vec_map::VecMap;

/// Lines by the name of their chain.
pub(super) type Chains<'l> = VecMap<&'l str, Vec<&'l str>>;

/// The lines of each chain.
pub(super) fn chains(listed: &str) -> Chains<'_> {
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("chain ")?.split_whitespace().next());
    // kube-proxy makes thousands, in no order: sorted first, each goes to the map's end.
    let mut chains: Chains<'_> = names.into_set().into_iter().map(|name| (name, Vec::new())).collect();
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
pub(super) fn hook_of(line: &str) -> Option<(Hook, bool)> {
    let rest = line.strip_prefix("type filter hook ")?;
    let hook = match rest.split_whitespace().next()? {
        "forward" => Hook::Forward,
        "input" => Hook::Input,
        _ => return None,
    };
    Some((hook, rest.contains("policy drop")))
}

/// A rule without a condition that ends all that came so far.
pub(super) fn is_refusal(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    if words.next_if_eq(&"counter").is_some() && words.next_if_eq(&"packets").is_some() {
        // Both numbers, and the word between.
        words.nth(2);
    }
    matches!(words.next(), Some("drop" | "reject"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_chains_do_not_hold_up_the_node() {
        let listed: String =
            (0..100_000).rev().map(|number| format!("\tchain {number:06} {{\n\t\taccept\n\t}}\n")).collect();
        let chains = chains(&listed);
        assert!(chains.len() == 100_000 && chains.values().all(|lines| *lines == ["accept"]));
        // Inserted as they come, they would move 200 GB, which takes longer than a suite may.
    }

    #[test]
    fn chain_has_its_lines_and_hook() {
        let listed = "table ip a {\n\tset s {\n\t\ttype ipv4_addr\n\t}\n\tchain INPUT {\n\
            \t\ttype filter hook input priority 0; policy drop;\n\t\taccept\n\t}\n\tchain b {\n\t}\n}\n";
        let chains = chains(listed);
        assert_eq!(chains.get("INPUT").map(|lines| lines[1..].to_vec()), Some(vec!["accept"]));
        assert_eq!(chains.get("b"), Some(&Vec::new()), "a set is none of its lines");
        assert_eq!(hook_of(chains.get("INPUT").unwrap()[0]), Some((Hook::Input, true)));
        assert_eq!(hook_of("type filter hook forward priority 0; policy accept;"), Some((Hook::Forward, false)));
        for other in ["type nat hook input priority 0; policy drop;", "type filter hook output priority 0;", "accept"] {
            assert_eq!(hook_of(other), None, "{other}");
        }
    }

    #[test]
    fn refusal_has_no_condition() {
        for all in ["drop", "reject with icmpx admin-prohibited", "counter drop", "counter packets 12 bytes 800 drop"] {
            assert!(is_refusal(all), "{all}");
        }
        for some in ["tcp dport 80 drop", "counter packets 12 bytes 800 accept", "ip daddr 192.0.2.1 reject", ""] {
            assert!(!is_refusal(some), "{some}");
        }
    }
}
