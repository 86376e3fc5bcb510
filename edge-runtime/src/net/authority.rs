//! `HOST:PORT` as it stands in addresses and in the header `Host`. Pure.

use std::net::Ipv6Addr;

/// The host, in lower case and without brackets, and the port. The host is a DNS name, an IPv4 or (in brackets) an IPv6
/// address.
pub fn parse(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|ip| ip.parse::<Ipv6Addr>().is_ok())?,
        None => Some(host).filter(|name| (1..=253).contains(&name.len()) && name.bytes().all(plain))?,
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some((host.to_ascii_lowercase(), port))
}

/// The opposite of [`parse`].
pub fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
