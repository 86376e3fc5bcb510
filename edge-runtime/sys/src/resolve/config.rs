//! `/etc/hosts` and `/etc/resolv.conf` (hosts(5), resolv.conf(5)). Pure: text in, values out.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Limits of resolv.conf(5).
const MAX_SERVERS: usize = 3;
const MAX_SEARCH: usize = 6;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) servers: Vec<SocketAddr>,
    pub(super) search: Vec<String>,
    pub(super) ndots: usize,
    pub(super) timeout: Duration,
    pub(super) attempts: usize,
}

impl Config {
    pub(super) fn parse(text: &str) -> Self {
        let mut config =
            Self { servers: Vec::new(), search: Vec::new(), ndots: 1, timeout: Duration::from_secs(5), attempts: 2 };
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    config.servers.extend(words.next().and_then(super::server));
                }
                // The last of several lines counts.
                Some("search" | "domain") => {
                    config.search = words.take(MAX_SEARCH).map(|w| w.trim_matches('.').to_owned()).collect();
                    config.search.retain(|s| super::wire::is_host_name(s));
                }
                Some("options") => words.for_each(|w| config.option(w)),
                _ => {}
            }
        }
        config.servers.truncate(MAX_SERVERS);
        config
    }

    fn option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else { return };
        let Ok(value) = value.parse::<u8>() else { return };
        match name {
            "ndots" => self.ndots = usize::from(value.min(15)),
            "timeout" => self.timeout = Duration::from_secs(u64::from(value.clamp(1, 30))),
            "attempts" => self.attempts = usize::from(value.clamp(1, 5)),
            _ => {}
        }
    }

    /// Names to ask for, in order. A final dot means: this name and no other.
    pub(super) fn names(&self, host: &str) -> Vec<String> {
        if let Some(absolute) = host.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let mut names: Vec<_> = self.search.iter().map(|domain| format!("{host}.{domain}")).collect();
        names.retain(|name| super::wire::is_host_name(name));
        let dots = host.bytes().filter(|b| *b == b'.').count();
        let at = if dots >= self.ndots { 0 } else { names.len() };
        names.insert(at, host.to_owned());
        names
    }

    /// Every server, once per attempt.
    pub(super) fn rounds(&self) -> Vec<SocketAddr> {
        self.servers.repeat(self.attempts)
    }
}

/// Addresses of a name in the hosts file.
pub(super) fn hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let host = host.trim_end_matches('.');
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(address) = words.next().and_then(|w| w.parse().ok()) else { continue };
        if words.any(|name| name.eq_ignore_ascii_case(host)) {
            found.push(address);
        }
    }
    found.truncate(super::MAX_ADDRESSES);
    found
}
