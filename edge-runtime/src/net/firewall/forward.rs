//! Forward rules of other programs: Docker and firewalls drop unknown traffic, and a rule in a table of ours cannot
//! overrule that. Docker has a chain for its user (`DOCKER-USER`), which gets our accept rules; without that chain the
//! message names the exact remedy. Later changes count, too: a firewall that is started or reloaded starts empty.

use std::path::Path;

use super::others::{self, Blocking, Hook};
use crate::net::settings::NetworkSettings;

/// Docker and its like speak iptables, whose table this is.
const TABLE: &str = "filter";
const USER: &str = "DOCKER-USER";

/// Lets pods' packets through where that is ours to do; what is in their way after that.
pub async fn pass(nft: &Path, settings: &NetworkSettings) -> Vec<Blocking> {
    let bridge = settings.bridge.as_str();
    let (v4, v6) =
        (settings.subnets.iter().any(|one| one.is_ipv4()), settings.subnets.iter().any(|one| !one.is_ipv4()));
    let Some(chains) = super::listed(nft, &["list", "chains"]).await else { return Vec::new() };
    let mut blocking = Vec::new();
    for (family, table) in others::tables(&chains, bridge, v4, v6) {
        let Some(text) = super::listed(nft, &["list", "table", &family, &table]).await else { continue };
        let mut found = others::blocking(&family, &table, &text, bridge);
        let user = table == TABLE
            && text.lines().any(|line| line.trim().strip_prefix("chain ") == Some(&format!("{USER} {{")));
        if user && found.iter().any(|one| one.hook == Hook::Forward) {
            let missing = rules(bridge).into_iter().filter(|rule| !text.contains(rule.as_str()));
            let line =
                |rule| format!("insert rule {family} {TABLE} {USER} {rule} accept comment \"pods of {bridge}\"\n");
            let script: String = missing.map(line).collect();
            match super::run(nft, &script).await {
                // The rules exist, but no hook uses that chain.
                _ if script.is_empty() => {}
                Ok(()) => found.retain(|one| one.hook != Hook::Forward),
                Err(error) => log::warn!("no rule for {bridge} in the chain {USER}: {error}"),
            }
        }
        blocking.extend(found);
    }
    blocking
}

/// Takes our rules out of Docker's chains again.
pub async fn remove(nft: &Path, bridge: &str) {
    for family in ["ip", "ip6"] {
        let Some(user) = super::list(nft, family, TABLE, USER).await else { continue };
        let script: String = handles(&user, bridge)
            .iter()
            .map(|handle| format!("delete rule {family} {TABLE} {USER} handle {handle}\n"))
            .collect();
        if !script.is_empty()
            && let Err(error) = super::run(nft, &script).await
        {
            log::warn!("rules of {bridge} stay in the chain {USER}: {error}");
        }
    }
}

/// Rules for traffic from pods, and to pods: answers and host ports.
fn rules(bridge: &str) -> [String; 2] {
    ["iifname", "oifname"].map(|side| format!("{side} \"{bridge}\" counter"))
}

/// Handles of the rules that [`pass`] made.
fn handles(chain: &str, bridge: &str) -> Vec<u64> {
    let ours = rules(bridge);
    let lines = chain.lines().filter(|line| ours.iter().any(|rule| line.contains(rule.as_str())));
    lines.filter_map(|line| line.rsplit_once("# handle ")?.1.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_read() {
        let chain = "table ip filter {\n\tchain FORWARD { # handle 1\n\t\ttype filter hook forward priority filter; \
            policy drop;\n\t\tiifname \"b0\" counter packets 0 bytes 0 accept comment \"x\" # handle 12\n\
            \t\tiifname \"b01\" counter packets 0 bytes 0 accept # handle 13\n\t}\n}\n";
        assert_eq!(handles(chain, "b0"), [12]);
    }
}
