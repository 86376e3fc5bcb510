//! Addresses of other bridges, as Node objects name them. Pure.

use std::net::{IpAddr, SocketAddr};

/// Whether a bridge may dial this place (`IP:PORT`). A Node can be changed by users with the right and, if it is that of a kubelet,
/// by its node, so a place must not reach what only listens on the bridge's own machine or link (K8s pkg/proxy/util/utils.go
/// isProxyableIP). Loopback is allowed to a bridge that others reach there, too: `own` is its place.
pub(super) fn may_dial(place: &str, own: Option<&str>) -> bool {
    let ip = |place: &str| place.parse::<SocketAddr>().ok().map(|address| address.ip().to_canonical());
    let is_local = || own.and_then(ip).is_some_and(|own| own.is_loopback());
    ip(place).is_some_and(|ip| if ip.is_loopback() { is_local() } else { is_global_unicast(ip) })
}

fn is_global_unicast(ip: IpAddr) -> bool {
    let is_of_link = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_of_link && !ip.is_unspecified() && !ip.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_on_the_own_machine_or_link_is_not_dialled() {
        for good in ["10.0.0.2:9446", "203.0.113.7:1", "[fd00::2]:9446", "[2001:db8::1]:9446"] {
            assert!(may_dial(good, None) && may_dial(good, Some("127.0.0.1:1")), "{good}");
        }
        let local = ["127.0.0.1:9446", "[::1]:9446", "[::ffff:127.0.0.1]:9446"];
        for place in local {
            assert!(!may_dial(place, None) && !may_dial(place, Some("10.0.0.1:9446")), "{place}");
            assert!(may_dial(place, Some("127.0.0.1:9447")), "{place}");
        }
        for bad in [
            "169.254.169.254:80",
            "[fe80::1]:9446",
            "[::ffff:169.254.169.254]:80",
            "0.0.0.0:9446",
            "[::]:9446",
            "224.0.0.1:9446",
            "[ff02::1]:9446",
            "255.255.255.255:9446",
            "bridge.example:9446",
            "10.0.0.2",
            "",
        ] {
            assert!(!may_dial(bad, Some("127.0.0.1:9447")), "{bad}");
        }
    }
}
