//! A range of addresses as routes and firewalls have it: any prefix of either family. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// `10.96.0.0/16`; no bits beyond the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    v6: bool,
    length: u8,
    /// An IPv4 network in its high 32 bits.
    bits: u128,
}

impl Prefix {
    /// The range of this length around an address.
    pub fn around(ip: IpAddr, length: u8) -> Self {
        let (v6, most, bits) = match ip {
            IpAddr::V4(ip) => (false, 32, u128::from(u32::from(ip)) << 96),
            IpAddr::V6(ip) => (true, 128, u128::from(ip)),
        };
        let length = length.min(most);
        Self { v6, length, bits: bits & mask(length) }
    }

    pub fn is_ipv6(self) -> bool {
        self.v6
    }

    pub fn length(self) -> u8 {
        self.length
    }

    pub fn ip(self) -> IpAddr {
        match self.v6 {
            true => Ipv6Addr::from(self.bits).into(),
            false => Ipv4Addr::from(u32::try_from(self.bits >> 96).unwrap_or_default()).into(),
        }
    }

    pub fn contains(self, ip: IpAddr) -> bool {
        Self::around(ip, self.length) == self
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.ip()) || other.contains(self.ip())
    }

    /// The smallest range that has both.
    pub fn common(self, other: Self) -> Self {
        let same = u8::try_from((self.bits ^ other.bits).leading_zeros()).unwrap_or_default();
        Self::around(self.ip(), same.min(self.length).min(other.length))
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = String;

    /// Parses a prefix like Kubernetes: bits beyond the prefix are ignored.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (ip, length) = text.trim().split_once('/')?;
            let ip: IpAddr = ip.parse().ok()?;
            let length: u8 = length.parse().ok()?;
            (length <= if ip.is_ipv4() { 32 } else { 128 }).then(|| Self::around(ip, length))
        };
        parse().ok_or_else(|| format!("'{text}' is no range of addresses (ADDRESS/PREFIX)"))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip(), self.length)
    }
}

/// Formats the ranges as elements of an nft set.
pub fn join(ranges: &[Prefix]) -> String {
    ranges.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_are_read_and_compared() {
        for (text, shown) in [
            ("10.96.7.3/16", "10.96.0.0/16"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            (" 10.0.0.1/32", "10.0.0.1/32"),
            ("fd00:1::7/108", "fd00:1::/108"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(of(text).to_string(), shown);
        }
        for wrong in ["", "10.0.0.1", "10.0.0.0/33", "fd00::/129", "x/3", "10.0.0.0/-1", "10.0.0.0/8; drop"] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
        assert!(of("10.96.0.0/16").contains("10.96.255.1".parse().unwrap()));
        assert!(!of("10.96.0.0/16").contains("10.97.0.1".parse().unwrap()));
        assert!(!of("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(of("10.0.0.0/8").overlaps(of("10.96.0.0/16")) && of("10.96.0.0/16").overlaps(of("10.0.0.0/8")));
        assert!(!of("10.96.0.0/16").overlaps(of("10.97.0.0/16")) && !of("::/0").overlaps(of("0.0.0.0/0")));
        assert_eq!(of("10.96.0.0/24").common(of("10.96.3.0/24")), of("10.96.0.0/22"));
        assert_eq!(of("10.96.0.0/24").common(of("10.96.0.0/24")), of("10.96.0.0/24"));
    }
}
