//! The HTTP proxy of the node, and which connections go through it. Pure.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::authority;
use super::prefix::Prefix;

/// Section `proxy` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Proxy {
    /// Without it every connection is direct.
    pub url: Option<Server>,
    /// One line `NAME:PASSWORD`, read for each connection.
    pub user_file: Option<PathBuf>,
    /// Hosts that are reached without the proxy: `HOST`, `HOST:PORT`, `.SUFFIX` or `ADDRESS/LENGTH`.
    pub except: Vec<String>,
    /// What uses it; empty: everything.
    #[serde(rename = "for")]
    pub uses: Vec<Use>,
}

/// Connections that leave the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// The link to the bridge, and `join`.
    Link,
    /// Pulls of images, and of other versions of the programs.
    Pull,
}

/// Where the proxy listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Server {
    /// Without brackets.
    pub host: String,
    pub port: u16,
}

/// The text is not repeated: it may have a password in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address of a proxy must be http://HOST:PORT; a login goes into proxy.user-file")]
pub struct UrlError;

impl Default for Proxy {
    fn default() -> Self {
        Self { url: None, user_file: None, except: Vec::new(), uses: vec![Use::Link, Use::Pull] }
    }
}

impl Proxy {
    /// The proxy of these connections; one without `url` if they are direct.
    pub fn of(&self, what: Use) -> Self {
        if self.uses.is_empty() || self.uses.contains(&what) { self.clone() } else { Self::default() }
    }

    /// The proxy for a connection to this host, without brackets; none if it is direct. No proxy leads to this machine's
    /// own loopback.
    pub fn towards(&self, host: &str, port: u16) -> Option<&Server> {
        let host = plain(host);
        // RFC 6761, 6.3: so the resolver has it, too.
        let is_local = host == "localhost" || host.ends_with(".localhost");
        let is_here = is_local || address(&host).is_some_and(|ip| ip.is_loopback());
        let is_direct = || is_here || self.except.iter().any(|entry| fits(entry, &host, port) == Some(true));
        self.url.as_ref().filter(|_| !is_direct())
    }

    /// An entry of `except` that fits nothing.
    pub fn malformed(&self) -> Option<&String> {
        self.except.iter().find(|entry| fits(entry, "", 0).is_none())
    }
}

/// A name as it is compared: case says nothing (RFC 4343), and the dot of the root says nothing (RFC 1034, 3.1).
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// An address as it is compared: `::ffff:10.0.0.1` is 10.0.0.1.
fn address(host: &str) -> Option<IpAddr> {
    host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Whether an entry of `except` names this [`plain`] host; `None` if it can name no host.
fn fits(entry: &str, host: &str, port: u16) -> Option<bool> {
    let ip = address(host);
    if let Ok(range) = entry.parse::<Prefix>() {
        return Some(ip.is_some_and(|ip| range.contains(ip)));
    }
    let (name, only) = match authority::parse(entry) {
        Some((name, only)) => (plain(&name), Some(only)),
        None => {
            let name = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
            // Any port does: the host is checked as one with a port is.
            (plain(&authority::parse(&authority::join(name, 1))?.0), None)
        }
    };
    let is_it = match name.strip_prefix('.') {
        Some(below) if below.is_empty() || below.starts_with('.') => return None,
        Some(_) => ip.is_none() && host.ends_with(&name),
        None if name.is_empty() => return None,
        None => name == host || ip.is_some() && address(&name) == ip,
    };
    Some(is_it && only.is_none_or(|only| only == port))
}

impl Server {
    /// `HOST:PORT`.
    pub fn authority(&self) -> String {
        authority::join(&self.host, self.port)
    }
}

impl FromStr for Server {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("http://").ok_or(UrlError)?;
        let (host, port) = authority::parse(rest.strip_suffix('/').unwrap_or(rest)).ok_or(UrlError)?;
        Ok(Self { host, port })
    }
}

impl TryFrom<String> for Server {
    type Error = UrlError;

    fn try_from(text: String) -> Result<Self, UrlError> {
        text.parse()
    }
}

impl From<Server> for String {
    fn from(server: Server) -> Self {
        format!("http://{}", server.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(except: &[&str]) -> Proxy {
        let except = except.iter().map(|entry| (*entry).to_owned()).collect();
        Proxy { url: Some("http://Proxy.lan:3128/".parse().unwrap()), except, ..Proxy::default() }
    }

    #[test]
    fn exceptions_are_hosts_ports_suffixes_and_ranges() {
        for (entry, direct, proxied) in [
            ("registry.site", &["registry.site:443", "Registry.Site:5000"][..], &["a.registry.site:443"][..]),
            ("registry.site:5000", &["registry.site:5000"], &["registry.site:443"]),
            (".lan", &["a.lan:1", "a.b.LAN:2"], &["lan:1", "alan:1", "a.lan.example:1", "evil-lan:1"]),
            (".LAN:5000", &["a.lan:5000"], &["a.lan:443"]),
            (
                "10.0.0.0/8",
                &["10.1.2.3:443", "::ffff:10.1.2.3:443"],
                &["11.1.2.3:443", "ten.example:443", "::a01:203:443"],
            ),
            ("192.0.2.1", &["192.0.2.1:1", "::ffff:192.0.2.1:1"], &["192.0.2.10:1"]),
            ("fd00::/8", &["fd12::1:443"], &["fe80::1:443"]),
            ("fd00:0::1", &["fd00::1:443", "FD00:0:0::1:443"], &["fd00::2:443"]),
            ("[fd00::1]", &["fd00::1:443"], &["fd00::2:443"]),
            ("[fd00::1]:5000", &["fd00::1:5000"], &["fd00::1:443"]),
            (".1", &[], &["10.0.0.1:1"]),
            // A name with the dot of the root is the same name.
            ("registry.site", &["registry.site.:443"], &["registry.site.example.:443"]),
            ("registry.site.", &["registry.site:443", "registry.site.:443"], &["registry:443"]),
            (".lan.", &["a.lan:1", "a.lan.:1"], &["alan.:1"]),
        ] {
            let proxy = proxy(&[entry]);
            assert_eq!(proxy.malformed(), None, "{entry}");
            let through = |target: &&str| {
                let (host, port) = target.rsplit_once(':').unwrap();
                proxy.towards(host, port.parse().unwrap()).is_some()
            };
            assert!(!direct.iter().any(through), "{entry} is direct: {direct:?}");
            assert!(proxied.iter().all(through), "{entry} says nothing of {proxied:?}");
        }
        let never = ". .. ..lan * *.lan 10.0.0.0/33 https://a a:0 a:70000 a:b [fd00::1 fd00::g";
        for wrong in never.split(' ').chain(["", "a b"]) {
            assert_eq!(proxy(&["a", wrong]).malformed().map(String::as_str), Some(wrong));
        }
    }

    #[test]
    fn loopback_and_other_uses_are_direct() {
        let all = proxy(&[]);
        for host in
            ["localhost", "LocalHost.", "registry.localhost", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]
        {
            assert_eq!(all.towards(host, 5000), None, "{host}");
        }
        assert_eq!(all.towards("bridge.example", 7443).map(Server::authority), Some("proxy.lan:3128".to_owned()));
        let only_pulls = Proxy { uses: vec![Use::Pull], ..all.clone() };
        assert_eq!((only_pulls.of(Use::Link).url, only_pulls.of(Use::Pull).url), (None, all.url.clone()));
        // `for:` without a value.
        assert_eq!(Proxy { uses: Vec::new(), ..all.clone() }.of(Use::Link).url, all.url);
        assert_eq!(Proxy::default().towards("bridge.example", 7443), None);
    }

    #[test]
    fn url_is_plain_http_without_login_and_is_not_repeated() {
        let wrong = [
            "",
            "proxy.lan:3128",
            "https://proxy.lan:3128",
            "socks5://proxy.lan:1080",
            "http://proxy.lan",
            "http://name:hunter22@proxy.lan:3128",
            "http://proxy.lan:3128/x",
        ];
        for text in wrong {
            let error = text.parse::<Server>().expect_err(text).to_string();
            assert!(error.contains("user-file") && !error.contains("hunter22"), "{error}");
        }
        let server: Server = "http://[fd00::1]:3128".parse().unwrap();
        assert_eq!(String::from(server), "http://[fd00::1]:3128");
    }
}
