//! The address of an MQTT broker, as it is configured: one reading for the daemon, which checks it, and the helper, which calls
//! there.

use std::path::PathBuf;

/// Bytes of a path that a unix socket can have, and one more (unix(7)).
const PATH: usize = 108;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp {
        /// A name or an IP address, without brackets.
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl Address {
    /// # Errors
    /// The reason, unless it is `tcp://HOST:PORT` or `unix:///PATH`.
    pub fn parse(broker: &str) -> Result<Self, String> {
        if let Some(path) = broker.strip_prefix("unix://") {
            let fits = path.starts_with('/') && path.len() < PATH;
            let wrong = || format!("unix:// wants an absolute path below {PATH} bytes");
            return if fits { Ok(Self::Unix(path.into())) } else { Err(wrong()) };
        }
        let Some((host, port)) = broker.strip_prefix("tcp://").and_then(|address| address.rsplit_once(':')) else {
            return Err(format!("{broker:?} is neither tcp://HOST:PORT nor unix:///PATH"));
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match port.parse() {
            Ok(port) if port > 0 && !host.is_empty() && !host.contains(['/', '@', ' ']) => {
                Ok(Self::Tcp { host: host.to_owned(), port })
            }
            _ => Err(format!("{broker:?} has no host and port")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_named_by_host_and_port_or_path() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.into(), port });
        assert_eq!(Address::parse("tcp://127.0.0.1:1883"), tcp("127.0.0.1", 1883));
        assert_eq!(Address::parse("tcp://[::1]:1883"), tcp("::1", 1883));
        assert_eq!(Address::parse("tcp://broker.local:8883"), tcp("broker.local", 8883));
        assert_eq!(Address::parse("unix:///run/mqtt.sock"), Ok(Address::Unix("/run/mqtt.sock".into())));
        let long = format!("unix:///{}", "x".repeat(107));
        for bad in [
            "",
            "tcp://",
            "tcp://:1",
            "tcp://a",
            "tcp://a:b",
            "tcp://a:0",
            "tcp://a:70000",
            "tcp://u@h:1",
            "unix://a",
            "ssl://a:1",
            &long,
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
