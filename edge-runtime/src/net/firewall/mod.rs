//! The node's nft tables: masquerade for pod traffic that leaves the node, host ports that lead into pods, and the
//! guard of the node's loopback.
//!
//! `nft` runs once at start, at tear-down, and whenever pods with host ports come or go. Knows nothing of links.

pub mod forward;
pub mod others;
mod rules;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use self::rules::table;
use super::netlink::{Socket, nftables};
use super::settings::NetworkSettings;
use super::{NetError, Subnet};
use crate::pod::ports::Forward;
use crate::sys::program::{self, Output};

/// Longest that `nft` may take: its work is milliseconds, on a loaded board a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of nft's output: the chains of a host with many other rules.
const ANSWER_LIMIT: usize = 4 << 20;

/// One whole set of rules on its way to the kernel.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The `nft` program.
    nft: PathBuf,
    bridge: String,
    script: String,
    localnet: Option<Localnet>,
}

/// The sysctl that lets packets of 127.0.0.1 out to a pod: none without subnets of IPv4.
#[derive(Clone, Debug)]
struct Localnet {
    path: PathBuf,
    /// A host port answers at the loopback.
    wanted: bool,
}

impl Localnet {
    fn set(&self, open: bool) -> Result<(), NetError> {
        let value = if open { "1" } else { "0" };
        if std::fs::read_to_string(&self.path).is_ok_and(|now| now.trim() == value) {
            return Ok(());
        }
        let action = if open { "allow host ports of 127.0.0.1 in" } else { "close 127.0.0.1 to pods in" };
        std::fs::write(&self.path, value).map_err(|source| NetError::path(action, &self.path, source))
    }
}

impl Replacement {
    /// Replaces all rules of the node: afterwards `forwards` are the only host ports.
    pub fn new(nft: &Path, settings: &NetworkSettings, forwards: &[Forward]) -> Self {
        let NetworkSettings { bridge, subnets, .. } = settings;
        let at_loopback = |forward: &Forward| forward.to.is_ipv4() && forward.port.ip.is_none_or(|ip| ip.is_loopback());
        let localnet = subnets.iter().any(|subnet| subnet.is_ipv4()).then(|| Localnet {
            path: PathBuf::from(format!("/proc/sys/net/ipv4/conf/{bridge}/route_localnet")),
            wanted: forwards.iter().any(at_loopback),
        });
        Self { nft: nft.into(), bridge: bridge.clone(), script: rules::replace(settings, forwards), localnet }
    }

    /// Replaces the rules with `nft`. Pods can reach the loopback only behind the guard; without a guard that way is
    /// closed.
    ///
    /// # Errors
    /// [`NetError::Firewall`]; the rules are as they were then.
    pub async fn apply(self) -> Result<(), NetError> {
        if let Some(localnet) = self.localnet.as_ref().filter(|localnet| !localnet.wanted) {
            localnet.set(false)?;
        }
        let applied = run(&self.nft, &self.script).await;
        let Some(localnet) = &self.localnet else { return applied };
        match applied {
            Ok(()) => localnet.set(localnet.wanted),
            Err(error) => {
                if !self.is_guarded().await {
                    localnet.set(false)?;
                }
                Err(error)
            }
        }
    }

    /// Whether the guard of an earlier set of rules is there.
    async fn is_guarded(&self) -> bool {
        list(&self.nft, "ip", &table(&self.bridge), rules::GUARD).await.is_some()
    }
}

/// Whether the tables are there in each family of the pods. What cannot be asked is.
pub fn is_there(socket: &mut Socket, settings: &NetworkSettings) -> bool {
    let name = table(&settings.bridge);
    let has = |subnet: &Subnet| nftables::has_chain(socket, !subnet.is_ipv4(), &name, rules::LAST).unwrap_or(true);
    settings.subnets.iter().all(has)
}

/// Deletes the tables of both families; no error if they are missing.
///
/// # Errors
/// [`NetError::Firewall`].
pub async fn remove(nft: &Path, bridge: &str) -> Result<(), NetError> {
    remove_v6(nft, bridge).await;
    run(nft, &rules::delete(bridge, "ip")).await
}

/// Whether no family has a table of this name. False if the kernel cannot be asked.
pub fn has_no(name: &str) -> bool {
    let found = Socket::open_netfilter().and_then(|mut socket| nftables::has_table_of_any_family(&mut socket, name));
    found.is_ok_and(|found| !found)
}

/// Whether these chains of a table are there, each in its family: true for IPv6.
pub fn has_chains<'a>(table: &str, mut chains: impl Iterator<Item = (bool, &'a str)>) -> bool {
    let Ok(mut socket) = Socket::open_netfilter() else { return false };
    chains.all(|(v6, chain)| nftables::has_chain(&mut socket, v6, table, chain).unwrap_or_default())
}

/// Deletes the table of IPv6, which an earlier configuration may have left. A kernel without IPv6 does not have one.
pub async fn remove_v6(nft: &Path, bridge: &str) {
    let found = Socket::open_netfilter().and_then(|mut socket| nftables::has_table(&mut socket, true, &table(bridge)));
    if found.is_ok_and(|found| !found) {
        return;
    }
    if let Err(error) = run(nft, &rules::delete(bridge, "ip6")).await {
        log::debug!("no table of IPv6 to delete: {error}");
    }
}

/// Runs a script, as one transaction.
///
/// # Errors
/// [`NetError::Firewall`]; nothing has changed then.
pub async fn run(nft: &Path, script: &str) -> Result<(), NetError> {
    submit(nft, &["-f", "-"], script).await
}

/// Whether the kernel would take a script; it is not run.
///
/// # Errors
/// [`NetError::Firewall`].
pub async fn check(nft: &Path, script: &str) -> Result<(), NetError> {
    submit(nft, &["-c", "-f", "-"], script).await
}

async fn submit(nft: &Path, args: &[&str], script: &str) -> Result<(), NetError> {
    let mut command = Command::new(nft);
    command.args(args);
    let output = program::run_unprotected(command, script.as_bytes(), ANSWER_LIMIT, PATIENCE).await;
    verdict(&output.map_err(|error| not_run(nft, &error))?)
}

/// A chain with handles, when it exists.
pub async fn list(nft: &Path, family: &str, table: &str, chain: &str) -> Option<String> {
    listed(nft, &["-a", "list", "chain", family, table, chain]).await
}

/// Returns its output, or `None` if the object does not exist.
async fn listed(nft: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new(nft);
    command.args(args);
    let output = program::run_unprotected(command, b"", ANSWER_LIMIT, PATIENCE).await.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn not_run(nft: &Path, error: &std::io::Error) -> NetError {
    let hint = if error.kind() == std::io::ErrorKind::NotFound { " (install nftables)" } else { "" };
    NetError::Firewall(format!("run {}: {error}{hint}", nft.display()))
}

fn verdict(output: &Output) -> Result<(), NetError> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or("no message").trim();
    Err(NetError::Firewall(format!("nft refused the rules ({}): {first}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_nft_is_reported_with_a_fix() {
        let subnets = vec!["fd00::/64".parse().unwrap()];
        let settings = NetworkSettings { bridge: "b0".into(), subnets, neighbours: None };
        let rules = Replacement::new(Path::new("/nowhere/nft"), &settings, &[]);
        let error = smol::block_on(rules.apply()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/nft") && error.contains("install nftables"), "{error}");
    }
}
