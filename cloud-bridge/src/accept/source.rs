//! Sources for which connections are counted.

use std::net::IpAddr;

/// A source of connections: an IPv4 address or a /64 network of IPv6, which is one subscriber's (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            v4 @ IpAddr::V4(_) => Self(v4),
            IpAddr::V6(v6) => Self(IpAddr::V6((u128::from(v6) >> 64 << 64).into())),
        }
    }
}
