//! Where clients of MQTT find the node itself, as it is configured: one reading for the daemon, which checks it, and the helper,
//! which listens there.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// KubeEdge's eventbus in mode 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Listen {
    /// `IP:PORT`, with brackets for IPv6.
    pub address: String,
    /// File with a user, a password and rights in each line. Empty: any client that reaches the address may do
    /// everything.
    pub users_file: String,
}

impl Default for Listen {
    fn default() -> Self {
        Self { address: "127.0.0.1:1884".to_owned(), users_file: String::new() }
    }
}

impl Listen {
    /// # Errors
    /// `KEY: WHY`: the address is malformed, or reachable from other hosts without authentication.
    pub fn checked(&self) -> Result<SocketAddr, String> {
        let address = address(&self.address)?;
        if !self.users_file.is_empty() && !self.users_file.starts_with('/') {
            return Err(format!("users-file: {:?} is no absolute path", self.users_file));
        }
        if self.users_file.is_empty() && !address.ip().to_canonical().is_loopback() {
            let why =
                "can be reached from elsewhere, where everybody could speak for every device: it needs a users-file";
            return Err(format!("address: {:?} {why}", self.address));
        }
        Ok(address)
    }
}

/// # Errors
/// `address: WHY`
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err(format!("address: {text:?} has no port")),
        Ok(address) => Ok(address),
        Err(_) => Err(format!("address: {text:?} is not IP:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_on_the_network_needs_users() {
        let checked = |address: &str, users: &str| {
            Listen { address: address.into(), users_file: users.into() }.checked().map(|address| address.to_string())
        };
        assert_eq!(Listen::default().checked().map(|address| address.port()), Ok(1_884));
        for good in ["127.0.0.1:1883", "127.8.9.1:1", "[::1]:1883", "[::ffff:127.0.0.1]:1883"] {
            assert_eq!(checked(good, ""), Ok(good.to_owned()));
        }
        for open in ["0.0.0.0:1883", "192.168.1.1:1883", "[::]:1883", "[::ffff:10.0.0.1]:1883"] {
            assert!(checked(open, "").is_err_and(|why| why.ends_with("it needs a users-file")), "{open}");
            assert_eq!(checked(open, "/etc/users"), Ok(open.to_owned()));
        }
        for bad in ["", "localhost:1883", "127.0.0.1", "127.0.0.1:0", ":1883", "::1:99999", "tcp://127.0.0.1:1883"] {
            assert!(checked(bad, "/etc/users").is_err(), "{bad}");
        }
        assert!(checked("127.0.0.1:1883", "users").is_err());
    }
}
