//! Whether this device has joined, how long its certificate is good, and whether a bridge answers: by a connection that says
//! nothing, so that the daemon's own is not disturbed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runtime::link::dial::{self, DialError};
use edge_runtime::link::identity::Identity;
use edge_runtime::link::status::{self, LinkStatus};
use edge_runtime::link::tls::{self, Time};
use edge_runtime::paths::Paths;
use jiff::Timestamp;

use crate::doctor::finding::Finding;

/// The node renews long before.
const SOON: i64 = 7 * 86_400;
const JOIN: &str = "on the bridge: sudo cloud-bridge token create NODE; here, the command that it prints: echo TOKEN | sudo edge-runtime join -";

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// `None`: it has not joined. `Err`: why it cannot be read.
    joined: Option<Result<String, String>>,
    /// Seconds since 1970: now, and when the certificate ends.
    now: i64,
    end: Option<i64>,
    bridges: Vec<Bridge>,
    /// What the daemon says of its link; none while it does not run.
    link: Option<(bool, String)>,
}

#[derive(Clone, Debug)]
struct Bridge {
    address: String,
    tried: Result<u128, Trouble>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trouble {
    Name(String),
    Connect(String),
    Tls(String),
}

pub(crate) fn look(paths: &Paths, daemon: Option<i32>) -> Facts {
    let mut facts = Facts { now: Timestamp::now().as_second(), ..Facts::default() };
    let identity = match Identity::load(paths) {
        Ok(None) => return facts,
        Ok(Some(identity)) => identity,
        Err(error) => {
            facts.joined = Some(Err(error.to_string()));
            return facts;
        }
    };
    facts.joined = Some(Ok(identity.node.clone()));
    facts.end = identity.certificate_end().and_then(|end| i64::try_from(end).ok());
    if daemon.is_some() {
        facts.link = LinkStatus::read(&status::file(paths)).ok().map(|status| (status.connected, status.why));
    }
    for bridge in &identity.bridges {
        facts.bridges.push(Bridge { address: bridge.to_string(), tried: connect(&identity, bridge) });
    }
    facts
}

fn connect(identity: &Identity, bridge: &edge_runtime::link::address::BridgeAddress) -> Result<u128, Trouble> {
    let config = tls::node_config(identity, Time::default()).map_err(|error| Trouble::Tls(error.to_string()))?;
    let began = Instant::now();
    let late = async {
        smol::Timer::after(Duration::from_secs(15)).await;
        Err(Trouble::Connect("no answer within 15 s".to_owned()))
    };
    let dial = async {
        let dialled = async { dial::connect(bridge, dial::addresses(bridge).await?, Arc::new(config)).await };
        dialled.await.map(drop).map_err(|error| match error {
            DialError::Resolve(_) | DialError::Name(_) => Trouble::Name(error.to_string()),
            DialError::Connect { .. } => Trouble::Connect(error.to_string()),
            _ => Trouble::Tls(error.to_string()),
        })
    };
    smol::block_on(smol::future::or(dial, late)).map(|()| began.elapsed().as_millis())
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    match &facts.joined {
        None => {
            let why = "only pods of etc/edge-runtime/manifests run";
            found.push(Finding::warning("joined", "this device has not joined a cluster", why, JOIN));
            return found;
        }
        Some(Err(why)) => {
            found.push(Finding::error("joined", why.clone(), "the node runs its pods, and talks to no bridge", JOIN));
            return found;
        }
        Some(Ok(node)) => found.push(Finding::ok("joined", format!("node {node}"))),
    }
    found.extend(certificate(facts));
    for bridge in &facts.bridges {
        found.push(judge_bridge(bridge));
    }
    if let Some((false, why)) = &facts.link {
        let cure =
            "see the bridges above; journalctl -u edge-runtime | grep link | tail; the node tries again by itself";
        let what = format!("the daemon is not connected: {why}");
        found.push(Finding::warning(
            "link",
            what,
            "the cloud calls the node NotReady and nothing new reaches it",
            cure,
        ));
    } else if facts.link.is_some() {
        found.push(Finding::ok("link", "the daemon is connected"));
    }
    found
}

fn certificate(facts: &Facts) -> Option<Finding> {
    let end = facts.end?;
    let at = Timestamp::from_second(end).map(|end| end.to_string()).unwrap_or_default();
    let left = end.saturating_sub(facts.now);
    let renew = "the node renews it by itself while a bridge is connected: see the finding about the bridge";
    Some(match left {
        ..=0 => Finding::error(
            "certificate",
            format!("the certificate of this node has expired ({at})"),
            "no bridge takes the node any more",
            format!("if the clock is right, {JOIN}"),
        ),
        1..SOON => {
            let what = format!("the certificate of this node ends in {} h ({at})", left / 3600);
            Finding::warning("certificate", what, "after that the node has to join again", renew)
        }
        _ => Finding::ok("certificate", format!("good for {} days more", left / 86_400)),
    })
}

fn judge_bridge(Bridge { address, tried }: &Bridge) -> Finding {
    let why = "nothing new reaches the node, and the cloud calls it NotReady";
    match tried {
        Ok(took) => {
            Finding::ok("bridge", format!("{address} answers within {took} ms, with the certificate it should have"))
        }
        Err(Trouble::Name(error)) => {
            let cure = "correct the name, or the resolver (/etc/resolv.conf): getent hosts NAME; names of mDNS (.local) are not resolved";
            Finding::error("bridge", format!("{address}: {error}"), why, cure)
        }
        Err(Trouble::Connect(error)) => {
            let cure = "see that the bridge runs, and that no firewall between drops its port: ip route get ADDRESS; nc -vz HOST PORT";
            Finding::error("bridge", format!("{address}: {error}"), why, cure)
        }
        Err(Trouble::Tls(error)) => {
            let cure =
                format!("if this is the right bridge and the clock is right, its authority is another one: {JOIN}");
            Finding::error("bridge", format!("{address}: {error}"), why, cure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    fn well() -> Facts {
        Facts {
            joined: Some(Ok("edge-1".into())),
            now: 1_800_000_000,
            end: Some(1_800_000_000 + 30 * 86_400),
            bridges: vec![Bridge { address: "https://b:1".into(), tried: Ok(12) }],
            link: Some((true, String::new())),
        }
    }

    fn tried(trouble: Trouble) -> Vec<Finding> {
        judge(&Facts { bridges: vec![Bridge { address: "https://b:1".into(), tried: Err(trouble) }], ..well() })
    }

    #[test]
    fn whatever_keeps_a_node_from_its_bridge_is_found() {
        assert_fine(&judge(&well()));
        let judge = |facts| judge(&facts);
        assert_found(&judge(Facts { joined: None, ..well() }), "joined", Severity::Warning, "sudo edge-runtime join");
        let damaged = Facts { joined: Some(Err("identity.json: EOF".into())), ..well() };
        assert_found(&judge(damaged), "joined", Severity::Error, "cloud-bridge token create");
        assert_found(&judge(Facts { end: Some(1), ..well() }), "certificate", Severity::Error, "edge-runtime join");
        let endless = judge(Facts { end: Some(i64::MAX), now: -1, ..well() });
        assert!(endless.iter().any(|one| one.check == "certificate" && one.severity == Severity::Ok), "{endless:?}");
        let soon = Facts { end: Some(1_800_000_000 + 3600), ..well() };
        assert_found(&judge(soon), "certificate", Severity::Warning, "renews it by itself");
        assert_found(&tried(Trouble::Name("no b".into())), "bridge", Severity::Error, "getent hosts");
        assert_found(&tried(Trouble::Connect("refused".into())), "bridge", Severity::Error, "no firewall");
        assert_found(
            &tried(Trouble::Tls("UnknownIssuer".into())),
            "bridge",
            Severity::Error,
            "its authority is another",
        );
        let down = Facts { link: Some((false, "refused".into())), ..well() };
        assert_found(&judge(down), "link", Severity::Warning, "journalctl -u edge-runtime");
    }
}
