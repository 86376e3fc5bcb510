//! Where programs on the device send requests for rules to, as it is configured.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::listen;

/// KubeEdge's servicebus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Servicebus {
    /// `IP:PORT` that only this device reaches.
    pub address: String,
}

impl Default for Servicebus {
    fn default() -> Self {
        Self { address: "127.0.0.1:9060".to_owned() }
    }
}

impl Servicebus {
    /// # Errors
    /// `KEY: WHY`: the address is malformed, or reachable from other hosts.
    pub fn checked(&self) -> Result<SocketAddr, String> {
        let address = listen::address(&self.address)?;
        if !address.ip().to_canonical().is_loopback() {
            let why =
                "can be reached from elsewhere, where nobody is asked who they are: it has to be a loopback address";
            return Err(format!("address: {:?} {why}", self.address));
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_on_the_device_reach_it() {
        let checked = |address: &str| Servicebus { address: address.into() }.checked().map(|address| address.port());
        assert_eq!(Servicebus::default().checked().map(|address| address.port()), Ok(9_060));
        assert_eq!(checked("[::1]:9060"), Ok(9_060));
        for bad in ["", "localhost:9060", "127.0.0.1:0", "0.0.0.0:9060", "10.0.0.1:9060", "[::]:9060"] {
            assert!(checked(bad).is_err_and(|why| why.starts_with("address: ")), "{bad}");
        }
    }
}
