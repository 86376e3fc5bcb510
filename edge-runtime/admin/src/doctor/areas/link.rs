//! Whether this device has joined, how long its certificate is good, and whether a bridge answers, through the proxy if one is
//! configured: by a connection that says nothing, so that the daemon's own is not disturbed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runtime::link::address::BridgeAddress;
use edge_runtime::link::dial::{self, DialError};
use edge_runtime::link::identity::Identity;
use edge_runtime::link::status::{self, LinkStatus};
use edge_runtime::link::tls::{self, Time};
use edge_runtime::net::proxy::{Proxy, Server, Use};
use jiff::Timestamp;

use crate::doctor::finding::Finding;
use crate::doctor::host::Host;
use crate::join::file;

/// The node renews long before.
const SOON: i64 = 7 * 86_400;
/// Timeout of a bridge's answer, and through a proxy, which connects in this time.
const PATIENCE: u64 = 15;
const PATIENCE_THROUGH: u64 = 45;
const JOIN: &str = "on the bridge: sudo cloud-bridge token create NODE; here, the command that it prints: echo TOKEN | sudo edge-runtime join -";

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// `None`: it has not joined. `Err`: why it cannot be read.
    joined: Option<Result<String, String>>,
    /// File of a first boot, which has not joined yet.
    join_file: Option<PathBuf>,
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
    /// `HOST:PORT` of the proxy on the way to it.
    proxy: Option<String>,
    tried: Result<u128, Trouble>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trouble {
    Name(String),
    Connect(String),
    Proxy(String),
    Tls(String),
}

pub(crate) fn look(host: &Host, daemon: Option<i32>) -> Facts {
    let paths = &host.paths;
    let proxy = host.config.as_ref().map(|config| config.proxy.of(Use::Link)).unwrap_or_default();
    let join_file = file::find(paths.root());
    let mut facts = Facts { now: Timestamp::now().as_second(), join_file, ..Facts::default() };
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
        let through = proxy.towards(&bridge.host, bridge.port).map(Server::authority);
        let tried = connect(&identity, bridge, &proxy);
        facts.bridges.push(Bridge { address: bridge.to_string(), proxy: through, tried });
    }
    facts
}

fn connect(identity: &Identity, bridge: &BridgeAddress, proxy: &Proxy) -> Result<u128, Trouble> {
    let config = tls::node_config(identity, Time::default()).map_err(|error| Trouble::Tls(error.to_string()))?;
    let began = Instant::now();
    let is_direct = proxy.towards(&bridge.host, bridge.port).is_none();
    let patience = if is_direct { PATIENCE } else { PATIENCE_THROUGH };
    let late = async {
        smol::Timer::after(Duration::from_secs(patience)).await;
        Err(Trouble::Connect(format!("no answer within {patience} s")))
    };
    let dial = async {
        let dialled = async {
            let addresses = dial::addresses(bridge, proxy).await?;
            dial::connect(bridge, proxy, addresses, Arc::new(config)).await
        };
        dialled.await.map(drop).map_err(|error| match error {
            DialError::Name(_) => Trouble::Name(error.to_string()),
            DialError::Resolve(_) if is_direct => Trouble::Name(error.to_string()),
            DialError::Connect { .. } if is_direct => Trouble::Connect(error.to_string()),
            DialError::Resolve(_) | DialError::Connect { .. } | DialError::Proxy { .. } => {
                Trouble::Proxy(error.to_string())
            }
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
            let cure = match &facts.join_file {
                Some(file) => format!(
                    "{} is tried until a bridge and, with a claim token, a person agrees: journalctl -u edge-runtime-firstboot -e",
                    file.display()
                ),
                None => JOIN.to_owned(),
            };
            found.push(Finding::warning("joined", "this device has not joined a cluster", why, cure));
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

fn judge_bridge(Bridge { address, proxy, tried }: &Bridge) -> Finding {
    let why = "nothing new reaches the node, and the cloud calls it NotReady";
    let through = proxy.as_ref().map(|proxy| format!(" through the proxy {proxy}")).unwrap_or_default();
    match tried {
        Ok(took) => {
            let what = format!("{address} answers within {took} ms{through}, with the certificate it should have");
            Finding::ok("bridge", what)
        }
        Err(Trouble::Proxy(error)) => {
            let cure = "correct the section proxy of config.yaml, or let the proxy allow CONNECT to the bridge's port (many allow only 443); see docs/proxy.md";
            Finding::error("proxy", format!("{address}: {error}"), why, cure)
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
            join_file: None,
            now: 1_800_000_000,
            end: Some(1_800_000_000 + 30 * 86_400),
            bridges: vec![Bridge { address: "https://b:1".into(), proxy: None, tried: Ok(12) }],
            link: Some((true, String::new())),
        }
    }

    fn tried(trouble: Trouble) -> Vec<Finding> {
        let proxy = Some("proxy.lan:3128".to_owned());
        judge(&Facts { bridges: vec![Bridge { address: "https://b:1".into(), proxy, tried: Err(trouble) }], ..well() })
    }

    #[test]
    fn whatever_keeps_a_node_from_its_bridge_is_found() {
        assert_fine(&judge(&well()));
        let judge = |facts| judge(&facts);
        assert_found(&judge(Facts { joined: None, ..well() }), "joined", Severity::Warning, "sudo edge-runtime join");
        let tries = Facts { joined: None, join_file: Some("/boot/edge-runtime.join".into()), ..well() };
        assert_found(&judge(tries), "joined", Severity::Warning, "/boot/edge-runtime.join is tried");
        let damaged = Facts { joined: Some(Err("identity.json: EOF".into())), ..well() };
        assert_found(&judge(damaged), "joined", Severity::Error, "cloud-bridge token create");
        assert_found(&judge(Facts { end: Some(1), ..well() }), "certificate", Severity::Error, "edge-runtime join");
        let endless = judge(Facts { end: Some(i64::MAX), now: -1, ..well() });
        assert!(endless.iter().any(|one| one.check == "certificate" && one.severity == Severity::Ok), "{endless:?}");
        let soon = Facts { end: Some(1_800_000_000 + 3600), ..well() };
        assert_found(&judge(soon), "certificate", Severity::Warning, "renews it by itself");
        assert_found(&tried(Trouble::Name("no b".into())), "bridge", Severity::Error, "getent hosts");
        assert_found(&tried(Trouble::Connect("refused".into())), "bridge", Severity::Error, "no firewall");
        assert_found(&tried(Trouble::Proxy("407".into())), "proxy", Severity::Error, "section proxy of config.yaml");
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
