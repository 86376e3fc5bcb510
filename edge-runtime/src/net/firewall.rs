//! The node's one nft table: masquerade for pod traffic that leaves the node.
//!
//! `nft` runs once at start and once at tear-down, never per pod. Knows nothing of links and pods.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{NetError, Subnet};

/// Name of the table; its prefix keeps bridge names that are nft keywords usable.
pub fn table(bridge: &str) -> String {
    format!("pods-{bridge}")
}

/// Commands that replace the table as a whole, in one transaction. Pure.
///
/// Traffic between pods stays on the bridge and keeps its addresses; multicast must not be translated.
pub fn rules(bridge: &str, subnet: Subnet) -> String {
    let table = table(bridge);
    format!(
        "add table ip {table}\n\
         delete table ip {table}\n\
         table ip {table} {{\n\
         \tchain postrouting {{\n\
         \t\ttype nat hook postrouting priority 100; policy accept;\n\
         \t\tip saddr {subnet} oifname != \"{bridge}\" ip daddr != 224.0.0.0/4 counter masquerade\n\
         \t}}\n\
         }}\n"
    )
}

/// Applies [`rules`].
pub fn apply(nft: &Path, bridge: &str, subnet: Subnet) -> Result<(), NetError> {
    run(nft, &rules(bridge, subnet))
}

/// Deletes the table; fine when there is none.
pub fn remove(nft: &Path, bridge: &str) -> Result<(), NetError> {
    let table = table(bridge);
    // Adding first makes the deletion of a missing table no error.
    run(nft, &format!("add table ip {table}\ndelete table ip {table}\n"))
}

fn run(nft: &Path, script: &str) -> Result<(), NetError> {
    let failed = |error: std::io::Error| {
        let hint = if error.kind() == std::io::ErrorKind::NotFound { " (install nftables)" } else { "" };
        NetError::Firewall(format!("run {}: {error}{hint}", nft.display()))
    };
    let mut child = Command::new(nft)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or("no message").trim();
    Err(NetError::Firewall(format!("nft refused the masquerade rule ({}): {first}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_replaced_as_a_whole_and_spares_the_bridge() {
        let rules = rules("sampan0", "10.88.0.0/24".parse().unwrap());
        assert!(rules.starts_with("add table ip pods-sampan0\ndelete table ip pods-sampan0\n"), "{rules}");
        assert!(rules.contains("ip saddr 10.88.0.0/24 oifname != \"sampan0\""), "{rules}");
    }

    #[test]
    fn a_missing_nft_is_named_with_its_cure() {
        let error = apply(Path::new("/nowhere/nft"), "b0", "10.88.0.0/24".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/nft") && error.contains("install nftables"), "{error}");
    }
}
