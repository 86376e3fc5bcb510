//! How a bridge proves to another bridge of its cluster that it is one, and where it is reached. Pure but for opening the port.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use anyhow::ensure;
use clap::Args;
use http::{HeaderMap, HeaderName};
use tokio::net::TcpListener;

use crate::info;
use crate::listen;
use crate::pki::PkiError;
use crate::pki::authority::{Authority, Signed};
use crate::pki::identity::{BRIDGE_GROUP, BRIDGE_USER, Holder, is_node_name};

/// Subject of the client certificate of a bridge: user and group. Only bridges have the key of the authority that signs it, and
/// it signs no such subject for others.
const BRIDGE: (&str, &str) = (BRIDGE_USER, BRIDGE_GROUP);

/// Header of a forwarded request: the node that it is for.
pub(super) const NODE: HeaderName = HeaderName::from_static("x-sampan-node");

/// How other bridges of the cluster reach this one.
#[derive(Debug, Clone, Default, Args)]
pub struct ReplicaFlags {
    /// Accept kubelet requests that other bridges of the cluster forward, for nodes that are connected here, at this address.
    /// Absent: none are accepted.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "kubelet_address")]
    pub replica_listen: Option<SocketAddr>,
    /// Address at which other bridges of the cluster reach that port. Absent: the address of --replica-listen if others can
    /// reach it, that of this machine if it listens everywhere.
    #[arg(long, value_name = "ADDRESS", requires = "replica_listen")]
    pub replica_address: Option<IpAddr>,
}

impl ReplicaFlags {
    /// Where other bridges reach the port, if they do: `IP:PORT`.
    ///
    /// # Errors
    /// The socket cannot be asked, or it is one of loopback, which no other machine reaches.
    pub fn place(&self, listener: Option<&TcpListener>) -> anyhow::Result<Option<String>> {
        let Some(listener) = listener else { return Ok(None) };
        let bound = listener.local_addr()?;
        let place = info::place(bound, self.replica_address);
        if place.is_none() {
            const CURE: &str = "other bridges do not reach it; name an address that they reach with --replica-address";
            ensure!(!bound.ip().is_loopback(), "--replica-listen {bound}: {CURE}");
            // The network may not be there yet.
            log::warn!("--replica-listen {bound}: this machine has no address; {CURE}");
        }
        Ok(place)
    }

    /// Names under which the port is reached.
    pub fn names(&self) -> Vec<String> {
        let mut names = info::addresses(self.replica_listen.as_slice(), &[]);
        names.extend(self.replica_address.map(|ip| ip.to_string()));
        names
    }

    /// The port, before anything else is begun: a taken one is a clean failure.
    ///
    /// # Errors
    /// It cannot be had.
    pub async fn bind(&self) -> anyhow::Result<Option<TcpListener>> {
        match self.replica_listen {
            Some(address) => Ok(Some(listen::bind(address).await?)),
            None => Ok(None),
        }
    }
}

/// Signs a certificate with which this bridge proves itself to others, for a year.
pub(super) fn sign(authority: &Authority) -> Result<Signed, PkiError> {
    authority.client(BRIDGE.0, BRIDGE.1)
}

/// Why a caller may not forward requests.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotABridge {
    #[error("the client certificate of a bridge is required")]
    Unproven,
    #[error("the client certificate of this bridge has expired")]
    Expired,
    #[error("{0} is no bridge of this cluster")]
    Other(String),
}

/// Checks that the holder of a client certificate, which the TLS layer has verified, is a bridge. A resumed TLS session uses an
/// old certificate, so its end is checked here.
pub(super) fn check(holder: Option<&Holder>, now: SystemTime) -> Result<(), NotABridge> {
    let holder = holder.ok_or(NotABridge::Unproven)?;
    if holder.subject.user != BRIDGE.0 || holder.subject.groups != [BRIDGE.1] {
        return Err(NotABridge::Other(holder.subject.user.clone()));
    }
    if holder.expires <= now { Err(NotABridge::Expired) } else { Ok(()) }
}

/// The node that a forwarded request is for.
pub(super) fn node(headers: &HeaderMap) -> Option<&str> {
    headers.get(NODE)?.to_str().ok().filter(|name| is_node_name(name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use crate::pki::clock;

    #[test]
    fn only_a_bridge_is_a_bridge() {
        let authority = Authority::create("replicas").unwrap();
        let holder = |user: &str, group: Option<&str>| {
            let signed = authority.user(user, group, Duration::from_secs(60)).unwrap();
            Holder::of(&signed.certificate).unwrap()
        };
        let bridge = Holder::of(&sign(&authority).unwrap().certificate).unwrap();
        assert_eq!(check(Some(&bridge), clock::now()), Ok(()));
        assert_eq!(bridge.subject.node(), None);
        assert_eq!(check(Some(&bridge), bridge.expires), Err(NotABridge::Expired));
        assert_eq!(check(None, clock::now()), Err(NotABridge::Unproven));
        for (user, group) in [
            ("system:node:a", Some("system:nodes")),
            ("sampan:bridge", Some("system:nodes")),
            ("sampan:bridge", None),
            ("system:node:a", Some("sampan:bridges")),
            ("admin", Some("system:masters")),
        ] {
            let refused = check(Some(&holder(user, group)), clock::now());
            assert_eq!(refused, Err(NotABridge::Other(user.to_owned())), "{group:?}");
        }
    }

    #[tokio::test]
    async fn port_that_no_other_bridge_reaches_is_refused() {
        let loopback: IpAddr = [127, 0, 0, 1].into();
        let mut flags = ReplicaFlags { replica_listen: Some(SocketAddr::new(loopback, 0)), replica_address: None };
        assert_eq!(flags.place(None).unwrap(), None);
        let listener = flags.bind().await.unwrap();
        let why = flags.place(listener.as_ref()).unwrap_err().to_string();
        assert!(why.contains("127.0.0.1") && why.contains("--replica-address"), "{why}");
        flags.replica_address = Some(loopback);
        assert!(flags.place(listener.as_ref()).unwrap().unwrap().starts_with("127.0.0.1:"));
    }

    #[test]
    fn node_of_a_forwarded_request_has_a_name_of_a_node() {
        let of = |value: &'static [u8]| {
            let value = HeaderValue::from_bytes(value).unwrap();
            node(&HeaderMap::from_iter([(NODE, value)])).map(str::to_owned)
        };
        assert_eq!(of(b"edge-1").as_deref(), Some("edge-1"));
        for bad in [&b""[..], b"../a", b"A", b"\xff"] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert_eq!(node(&HeaderMap::new()), None);
    }
}
