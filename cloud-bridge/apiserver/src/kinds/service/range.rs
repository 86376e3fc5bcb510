//! Ranges of addresses for Services, IPv4 only.

use std::fmt;
use std::net::Ipv4Addr;

/// Addresses for Services: network and prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    network: u32,
    prefix: u8,
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.prefix)
    }
}

impl ServiceRange {
    /// Parses `10.96.0.0/16`.
    ///
    /// # Errors
    /// The reason why the text is invalid, and a valid form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no IPv4 range such as 10.96.0.0/16 (prefix 8 to 30)");
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().ok().filter(|prefix| (8..=30).contains(prefix)).ok_or_else(wrong)?;
        Ok(Self { network: u32::from(address) & (u32::MAX << (32 - prefix)), prefix })
    }

    /// Addresses that may be given, without network and broadcast.
    pub(super) fn size(self) -> u32 {
        (1 << (32 - self.prefix)) - 2
    }

    /// Address of the API's own Service.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    pub(super) fn contains(self, address: Ipv4Addr) -> bool {
        let place = u32::from(address).wrapping_sub(self.network);
        place >= 1 && place <= self.size()
    }

    /// A free address, searched from a seeded position, so that an address is not reused at once. `api` belongs to the
    /// API.
    pub(super) fn free(self, taken: impl Fn(Ipv4Addr) -> bool, api: Ipv4Addr, seed: u32) -> Option<Ipv4Addr> {
        // The lower part is left for explicitly chosen addresses, as in the API server.
        let low = (self.size() / 16).clamp(8, 256).min(self.size() / 2);
        let upper = self.size() - low;
        let above = (0..upper).map(|n| low + (seed.wrapping_add(n)) % upper);
        let mut places = above.chain(0..low).map(|place| Ipv4Addr::from(self.network + 1 + place));
        places.find(|address| *address != api && !taken(*address))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ranges_are_read_and_bounded() {
        let range = ServiceRange::parse("10.96.3.4/16").unwrap();
        assert_eq!(range.first(), Ipv4Addr::new(10, 96, 0, 1));
        assert!(range.contains(Ipv4Addr::new(10, 96, 255, 254)));
        for outside in [[10, 96, 0, 0], [10, 96, 255, 255], [10, 97, 0, 1], [10, 95, 255, 255]] {
            assert!(!range.contains(outside.into()), "{outside:?}");
        }
        for bad in ["", "10.96.0.0", "10.96.0.0/31", "10.96.0.0/7", "::/64", "x/16"] {
            assert!(ServiceRange::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_address_is_given_once_and_the_first_never() {
        let range = ServiceRange::parse("10.0.0.0/28").unwrap();
        let mut given = BTreeSet::new();
        while let Some(address) = range.free(|address| given.contains(&address), range.first(), 5) {
            assert!(range.contains(address) && given.insert(address));
        }
        assert_eq!(given.len(), 13);
        assert!(!given.contains(&range.first()));
    }
}
