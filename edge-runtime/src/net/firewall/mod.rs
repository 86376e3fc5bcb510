//! The node's nft tables: masquerade for pod traffic that leaves the node, host ports that lead into pods.
//!
//! `nft` runs once at start, at tear-down, and whenever a pod with host ports comes or goes. Knows nothing of links.

pub mod forward;
mod rules;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use smol::io::AsyncWriteExt;

use super::{NetError, Subnet};
use crate::pod::ports::Forward;

/// One whole set of rules on its way to the kernel.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The `nft` program.
    nft: PathBuf,
    script: String,
    /// The sysctl that lets packets of 127.0.0.1 out to a pod, when host ports need it.
    localnet: Option<PathBuf>,
}

impl Replacement {
    /// What replaces all rules of the node: those of `forwards` are the only host ports afterwards.
    pub fn new(nft: &Path, bridge: &str, subnets: &[Subnet], forwards: &[Forward]) -> Self {
        let v4 = forwards.iter().any(|forward| forward.to.is_ipv4());
        let localnet = v4.then(|| PathBuf::from(format!("/proc/sys/net/ipv4/conf/{bridge}/route_localnet")));
        Self { nft: nft.into(), script: rules::replace(bridge, subnets, forwards), localnet }
    }

    /// Runs `nft` and waits for it: a few milliseconds, for the start only.
    ///
    /// # Errors
    /// [`NetError::Firewall`]; nothing has changed then.
    pub fn apply_at_start(&self) -> Result<(), NetError> {
        self.route_localnet()?;
        run(&self.nft, &self.script)
    }

    /// The same without holding the thread.
    ///
    /// # Errors
    /// As [`Replacement::apply_at_start`].
    pub async fn apply(self) -> Result<(), NetError> {
        self.route_localnet()?;
        let failed = |error| not_run(&self.nft, &error);
        let mut command = smol::process::Command::new(&self.nft);
        command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(self.script.as_bytes()).await.map_err(failed)?;
        }
        verdict(&child.output().await.map_err(failed)?)
    }

    fn route_localnet(&self) -> Result<(), NetError> {
        let Some(path) = &self.localnet else { return Ok(()) };
        std::fs::write(path, "1").map_err(|source| NetError::path("allow host ports of 127.0.0.1 in", path, source))
    }
}

/// Deletes the tables of both families; fine when there are none.
///
/// # Errors
/// [`NetError::Firewall`].
pub fn remove(nft: &Path, bridge: &str) -> Result<(), NetError> {
    remove_v6(nft, bridge);
    run(nft, &rules::delete(bridge, "ip"))
}

/// Deletes the table of IPv6, which an earlier configuration may have left. A kernel without IPv6 has none.
pub fn remove_v6(nft: &Path, bridge: &str) {
    if let Err(error) = run(nft, &rules::delete(bridge, "ip6")) {
        log::debug!("no table of IPv6 to delete: {error}");
    }
}

fn run(nft: &Path, script: &str) -> Result<(), NetError> {
    let failed = |error| not_run(nft, &error);
    let mut child = std::process::Command::new(nft)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes()).map_err(failed)?;
    }
    verdict(&child.wait_with_output().map_err(failed)?)
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
    fn a_missing_nft_is_named_with_its_cure() {
        let rules = Replacement::new(Path::new("/nowhere/nft"), "b0", &["10.88.0.0/24".parse().unwrap()], &[]);
        for error in [rules.apply_at_start().unwrap_err(), smol::block_on(rules.clone().apply()).unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains("/nowhere/nft") && error.contains("install nftables"), "{error}");
        }
    }
}
