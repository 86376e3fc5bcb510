//! Ranges of addresses in objects (apimachinery pkg/util/validation/ip.go, IsValidCIDRForLegacyField).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and how many of its bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    address: IpAddr,
    length: u32,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let plain = length.bytes().all(|b| b.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
        let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok().filter(|_| plain)?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        (length <= most).then_some(Self { address, length })
    }

    /// Whether it is one of IPv4.
    pub(crate) fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// The address as a number whose first bits count.
    fn bits(self) -> u128 {
        match self.address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - self.length).unwrap_or(0)
    }

    /// Whether the range contains an address.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let one = Self { address, length };
        one.address.is_ipv4() == self.address.is_ipv4() && one.bits() & self.mask() == self.bits() & self.mask()
    }

    /// Whether another range is smaller and within this one.
    pub(crate) fn is_beyond(self, other: Self) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4()
            && other.length > self.length
            && other.bits() & self.mask() == self.bits() & self.mask()
    }
}

/// Parses a range.
///
/// # Errors
/// The reason why it is invalid, and the range if it can be determined.
pub(crate) fn read(text: &str) -> Result<Cidr, (String, Option<Cidr>)> {
    let Some(cidr) = Cidr::parse(text) else {
        let lenient = Cidr::parse(&without_zeros(text));
        let why = match lenient {
            Some(_) => "must not have leading 0s in IP or prefix length",
            None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        };
        return Err((why.to_owned(), lenient));
    };
    let why = match cidr.address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => "must not have an IPv4-mapped IPv6 address",
        _ if cidr.bits() & !cidr.mask() != 0 => "must not have bits set beyond the prefix length",
        _ => return Ok(cidr),
    };
    Err((why.to_owned(), Some(cidr)))
}

/// Whether a range is IPv4, if it is in canonical form (`IsValidCIDR` there).
///
/// # Errors
/// The reason why it is invalid.
pub(crate) fn read_canonical(text: &str) -> Result<bool, String> {
    let cidr = read(text).map_err(|(why, _)| why)?;
    let shown = format!("{}/{}", cidr.address, cidr.length);
    if shown == text { Ok(cidr.address.is_ipv4()) } else { Err(format!("must be in canonical form ({shown:?})")) }
}

/// Numbers as they would be without zeros before them.
fn without_zeros(text: &str) -> String {
    let bare = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let whole = |address: &str| match address.contains(':') {
        true => address.to_owned(),
        false => address.split('.').map(bare).collect::<Vec<_>>().join("."),
    };
    match text.split_once('/') {
        Some((address, length)) => format!("{}/{}", whole(address), bare(length)),
        None => whole(text),
    }
}

/// The warning about a valid address that is not in canonical form (`GetWarningsForIP`).
pub(crate) fn ip_warning(path: &str, text: &str) -> Option<String> {
    let strict: Option<IpAddr> = text.parse().ok();
    let address = strict.or_else(|| without_zeros(text).parse().ok())?;
    match address.to_canonical() {
        IpAddr::V6(address) if address.to_string() != text => {
            Some(format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{address}\")"))
        }
        meant if strict != Some(meant) => {
            Some(format!("{path}: non-standard IP address {text:?} is invalid: use \"{meant}\""))
        }
        _ => None,
    }
}

/// Returns the warnings for a range (`GetWarningsForCIDR`).
pub(crate) fn warnings(path: &str, text: &str) -> Vec<String> {
    let strict = Cidr::parse(text);
    let Some(cidr) = strict.or_else(|| Cidr::parse(&without_zeros(text))) else { return Vec::new() };
    let Cidr { address, length } = cidr;
    let range = |bits: u128| match address {
        IpAddr::V4(_) => format!("{}/{length}", Ipv4Addr::from_bits(u32::try_from(bits >> 96).unwrap_or_default())),
        IpAddr::V6(_) => format!("{}/{length}", Ipv6Addr::from_bits(bits)),
    };
    let network = range(cidr.bits() & cidr.mask());
    let mut told = Vec::new();
    if cidr.bits() & !cidr.mask() != 0 {
        let single = format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 });
        told.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {network:?} or {single:?}?)"
        ));
    }
    if strict.is_none() {
        told.push(format!("{path}: non-standard CIDR value {text:?} is invalid: use {network:?}"));
    }
    if told.is_empty() && address.is_ipv6() && network != text {
        told.push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({network:?})"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_from_what_is_none() {
        for right in ["10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32", "2001:db8::/64", "::/0", "::1/128"] {
            assert!(read(right).is_ok(), "{right}");
        }
        let why = |text: &str| read(text).unwrap_err().0;
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "a/8", "10.0.0.0/-1", "::/129", "10.0.0.0/+8"] {
            assert!(why(wrong).starts_with("must be a valid CIDR value"), "{wrong}");
        }
        assert_eq!(why("010.0.0.0/8"), "must not have leading 0s in IP or prefix length");
        assert_eq!(why("10.0.0.0/08"), "must not have leading 0s in IP or prefix length");
        assert_eq!(why("10.0.0.1/8"), "must not have bits set beyond the prefix length");
        assert_eq!(why("::ffff:10.0.0.0/104"), "must not have an IPv4-mapped IPv6 address");
    }

    #[test]
    fn odd_addresses_are_told() {
        let told = |text: &str| ip_warning("a", text).unwrap_or_default();
        assert_eq!((told("10.0.0.1"), told("::1"), told("x")), (String::new(), String::new(), String::new()));
        assert_eq!(told("010.0.0.1"), "a: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"");
        assert_eq!(told("::ffff:1.2.3.4"), "a: non-standard IP address \"::ffff:1.2.3.4\" is invalid: use \"1.2.3.4\"");
        assert_eq!(told("::01"), "a: IPv6 address \"::01\" should be in RFC 5952 canonical format (\"::1\")");
        let ambiguous =
            "a: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)";
        assert_eq!(warnings("a", "10.0.0.1/8"), [ambiguous]);
        assert_eq!(warnings("a", "10.0.0.0/08").len(), 1);
        assert_eq!(
            warnings("a", "::0/0"),
            ["a: IPv6 CIDR value \"::0/0\" should be in RFC 5952 canonical format (\"::/0\")"]
        );
        assert!(warnings("a", "10.0.0.0/8").is_empty() && warnings("a", "x").is_empty());
    }

    #[test]
    fn a_part_of_a_range_is_smaller_than_it() {
        let cidr = |text: &str| read(text).unwrap();
        assert!(cidr("10.0.0.0/8").is_beyond(cidr("10.1.0.0/16")));
        assert!(cidr("0.0.0.0/0").is_beyond(cidr("10.0.0.0/8")));
        assert!(!cidr("10.0.0.0/8").is_beyond(cidr("10.0.0.0/8")));
        assert!(!cidr("10.0.0.0/8").is_beyond(cidr("11.0.0.0/16")));
        assert!(!cidr("::/0").is_beyond(cidr("10.0.0.0/8")));
    }
}
