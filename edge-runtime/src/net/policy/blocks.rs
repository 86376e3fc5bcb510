//! Ranges of addresses as `ipBlock` writes them. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::sys::sort::sort;

/// An address and how many of its bits count; the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    ip: IpAddr,
    prefix: u8,
}

impl Block {
    pub fn is_v6(self) -> bool {
        self.ip.is_ipv6()
    }

    /// Every address of its family.
    pub fn is_all(self) -> bool {
        self.prefix == 0
    }

    fn contains(self, other: Self) -> bool {
        self.is_v6() == other.is_v6() && self.prefix <= other.prefix && masked(other.ip, self.prefix) == self.ip
    }
}

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{:?} is no range of addresses", text.chars().take(60).collect::<String>());
        let (ip, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let (ip, prefix): (IpAddr, u8) = (ip.parse().map_err(|_| wrong())?, prefix.parse().map_err(|_| wrong())?);
        if prefix > if ip.is_ipv6() { 128 } else { 32 } {
            return Err(wrong());
        }
        Ok(Self { ip: masked(ip, prefix), prefix })
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

fn masked(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// Removes blocks inside others: `nft` refuses those in one set. Two blocks are nested or disjoint.
pub(super) fn merged(mut blocks: Vec<Block>) -> Vec<Block> {
    // A block comes right before what lies in it.
    sort(&mut blocks);
    let mut kept: Vec<Block> = Vec::new();
    for block in blocks {
        if !kept.last().is_some_and(|last| last.contains(block)) {
            kept.push(block);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(texts: &[&str]) -> Vec<Block> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn nested_blocks_are_removed() {
        let all =
            blocks(&["10.1.2.0/24", "10.1.0.0/16", "10.1.2.3/32", "192.0.2.0/25", "192.0.2.128/25", "10.1.0.0/16"]);
        let kept: Vec<String> = merged(all).iter().map(ToString::to_string).collect();
        assert_eq!(kept, ["10.1.0.0/16", "192.0.2.0/25", "192.0.2.128/25"]);
        let all = blocks(&["fd00::1/128", "0.0.0.0/0", "10.0.0.0/8", "::/0"]);
        assert_eq!(merged(all), blocks(&["0.0.0.0/0", "::/0"]));
    }

    #[test]
    fn bits_that_do_not_count_are_zero_and_nonsense_is_refused() {
        assert_eq!(
            blocks(&["10.1.2.3/8", "fd00::7/64", "1.2.3.4/32"]),
            blocks(&["10.0.0.0/8", "fd00::/64", "1.2.3.4/32"])
        );
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/8; drop", "a/8", "10.0.0.0/8 "]
        {
            assert!(wrong.parse::<Block>().is_err(), "{wrong}");
        }
    }
}
