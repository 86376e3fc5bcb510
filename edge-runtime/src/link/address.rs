//! Address of a bridge: `https://HOST:PORT`. Pure.

use crate::net::authority;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a bridge listens. The host is a DNS name, an IPv4 or (in brackets) an IPv6 address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BridgeAddress {
    /// Without brackets.
    pub host: String,
    pub port: u16,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("bridge address {0:?}: must be https://HOST:PORT")]
pub struct AddressError(String);

impl FromStr for BridgeAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let authority = text.strip_prefix("https://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let parsed = authority.and_then(authority::parse).map(|(host, port)| Self { host, port });
        parsed.ok_or_else(|| AddressError(text.to_owned()))
    }
}

impl fmt::Display for BridgeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

impl BridgeAddress {
    /// `HOST:PORT` as in a `Host` header.
    pub fn authority(&self) -> String {
        authority::join(&self.host, self.port)
    }
}

impl TryFrom<String> for BridgeAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<BridgeAddress> for String {
    fn from(address: BridgeAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_both_kinds_of_addresses() {
        for (text, host, port) in [
            ("https://Bridge.example:6440", "bridge.example", 6440),
            ("https://10.0.0.1:443/", "10.0.0.1", 443),
            ("https://[fe80::1]:6440", "fe80::1", 6440),
        ] {
            let address: BridgeAddress = text.parse().expect(text);
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string().parse(), Ok(address), "{text} again");
        }
    }

    #[test]
    fn refuses_everything_else_by_name() {
        for bad in [
            "",
            "http://a:1",
            "https://a",
            "https://:1",
            "https://a:0",
            "https://a:70000",
            "https://a:1/x",
            "https://a b:1",
            "https://fe80::1:6440",
            "https://[x]:1",
            "https://u@h:1",
        ] {
            let error = bad.parse::<BridgeAddress>().expect_err(bad);
            assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
        }
    }
}
