//! Other people's forward rules: Docker and firewalls drop what they do not know, and a rule of ours in a table of our
//! own cannot overrule that. Docker leaves a chain for its user (`DOCKER-USER`): there our accept rules go; where there
//! is none the exact remedy is told.

use std::path::Path;

/// Docker and its like speak iptables, whose table this is.
const TABLE: &str = "filter";
const FORWARD: &str = "FORWARD";
const USER: &str = "DOCKER-USER";

/// `None` when pods' packets may pass now.
pub async fn pass(nft: &Path, bridge: &str) -> Option<String> {
    if !drops(&super::list(nft, "ip", TABLE, FORWARD).await?) {
        return None;
    }
    let Some(user) = super::list(nft, "ip", TABLE, USER).await else { return Some(remedy(bridge)) };
    let missing: Vec<String> = rules(bridge)
        .into_iter()
        .filter(|rule| !user.contains(rule.as_str()))
        .map(|rule| format!("insert rule ip {TABLE} {USER} {rule} accept comment \"pods of {bridge}\"\n"))
        .collect();
    if missing.is_empty() {
        return None;
    }
    match super::run(nft, &missing.concat()).await {
        Ok(()) => None,
        Err(error) => Some(format!("{}: {error}", remedy(bridge))),
    }
}

/// Takes our rules out of Docker's chain again.
pub async fn remove(nft: &Path, bridge: &str) {
    let Some(user) = super::list(nft, "ip", TABLE, USER).await else { return };
    let script: String = handles(&user, bridge)
        .iter()
        .map(|handle| format!("delete rule ip {TABLE} {USER} handle {handle}\n"))
        .collect();
    if !script.is_empty()
        && let Err(error) = super::run(nft, &script).await
    {
        log::warn!("rules of {bridge} stay in the chain {USER}: {error}");
    }
}

/// From pods, and to pods: answers and host ports.
fn rules(bridge: &str) -> [String; 2] {
    ["iifname", "oifname"].map(|side| format!("{side} \"{bridge}\" counter"))
}

fn remedy(bridge: &str) -> String {
    format!(
        "the host drops forwarded packets (policy of chain FORWARD), so pods reach nothing beyond this node; allow \
         them: nft insert rule ip filter FORWARD iifname {bridge} accept; \
         nft insert rule ip filter FORWARD oifname {bridge} accept"
    )
}

fn drops(chain: &str) -> bool {
    chain.lines().any(|line| line.contains("hook forward") && line.contains("policy drop"))
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
        assert!(drops(chain) && !drops(&chain.replace("policy drop", "policy accept")));
        assert_eq!(handles(chain, "b0"), [12]);
    }
}
