//! The pods' network for users: host ports, both address families, CNI plugins.

mod cni;
mod families;
mod host_ports;

use std::process::Command;

/// All rules of this host as text.
fn rules() -> String {
    let output = Command::new("nft").args(["list", "ruleset"]).output().expect("nft starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
