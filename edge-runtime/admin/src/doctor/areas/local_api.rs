//! The local API, where it is configured: whether its helper runs and has its port.

use std::net::SocketAddr;

use edge_runtime::config::NetworkMode;
use edge_runtime::link::address::BridgeAddress;
use sampan_pod::local_api::PORT;
use sampan_sys::{helper, socket};
use smol::Async;

use super::network::{has_port, is_taken};
use crate::doctor::finding::Finding;
use crate::doctor::host::Host;

/// Check of all findings here.
const CHECK: &str = "local-api";
const WHY: &str = "pods that use the local API reach no API, and new ones of them may not start";

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// It is configured on a node that has joined.
    is_on: bool,
    /// The helper takes connections.
    runs: bool,
    /// Address of pods' requests at which another process listens.
    taken: Option<SocketAddr>,
}

pub(crate) fn look(host: &Host, bridges: &[BridgeAddress]) -> Facts {
    let config = host.config.as_ref().filter(|config| config.local_api.is_on() && !bridges.is_empty());
    let Some(config) = config else { return Facts::default() };
    let stream = socket::connect(&host.paths.api_socket()).and_then(Async::new).ok();
    let process = stream.as_ref().and_then(helper::pid_of).and_then(|pid| i32::try_from(pid).ok());
    let gateways = config.network.subnets.iter().filter(|_| config.network.mode != NetworkMode::Cni);
    let mut addresses = gateways.map(|subnet| SocketAddr::new(subnet.gateway(), PORT));
    let is_of_other = |address: &SocketAddr| is_taken(*address) && !(process.is_some() && has_port(process, PORT));
    Facts { is_on: true, runs: stream.is_some(), taken: addresses.find(is_of_other) }
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if !facts.is_on {
        return found;
    }
    if let Some(address) = facts.taken {
        let cure = format!("see who: ss -ltnp | grep :{PORT}; have it listen at another address");
        let what = format!("another process listens at {address}, an address of the local API");
        found.push(Finding::error(CHECK, what, WHY, cure));
    }
    match facts.runs {
        true => found.push(Finding::ok(CHECK, "edge-api runs")),
        false => {
            let cure = "see why in the log: journalctl -u edge-runtime | grep edge-api; the program is installed beside edge-runtime";
            found.push(Finding::error(CHECK, "edge-api does not run", WHY, cure));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    #[test]
    fn missing_helper_and_taken_port_are_found() {
        let well = Facts { is_on: true, runs: true, taken: None };
        assert_fine(&judge(&well));
        let absent = judge(&Facts { runs: false, ..well.clone() });
        assert_found(&absent, "local-api", Severity::Error, "grep edge-api");
        let taken = judge(&Facts { taken: Some(([10, 85, 0, 1], PORT).into()), ..well });
        assert_found(&taken, "local-api", Severity::Error, "ss -ltnp | grep :6443");
    }

    #[test]
    fn node_without_a_local_api_is_not_examined() {
        assert!(judge(&Facts::default()).is_empty());
    }
}
