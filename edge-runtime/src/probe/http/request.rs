//! A request of a probe or a hook: its bytes, and where a redirect leads. Pure.

use std::net::SocketAddr;

/// One request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::probe) struct Request {
    pub(in crate::probe) tls: bool,
    pub(in crate::probe) host: String,
    pub(in crate::probe) address: SocketAddr,
    /// Path and query.
    pub(in crate::probe) target: String,
    pub(in crate::probe) headers: Vec<(String, String)>,
    /// `User-Agent` unless the headers have one.
    pub(in crate::probe) agent: &'static str,
}

impl Request {
    pub(in crate::probe) fn authority(&self) -> String {
        authority(&self.host, self.address.port())
    }

    /// Formats a failure of the URL like Go's client.
    pub(in crate::probe) fn error(&self, what: &str) -> String {
        format!("Get \"{}\": {what}", self.url())
    }

    fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.target)
    }

    /// Why Go's client would not send it: a line break in a header begins another request.
    pub(super) fn refused(&self) -> Option<String> {
        for (name, value) in &self.headers {
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || !name.bytes().all(token) {
                return Some(format!("net/http: invalid header field name {name:?}"));
            }
            let is_host = name.eq_ignore_ascii_case("host");
            if is_host && !value.bytes().all(in_host) {
                return Some("http: invalid Host header".to_owned());
            }
            // The value may be a secret.
            if value.bytes().any(|b| b != b'\t' && b.is_ascii_control()) {
                return Some(format!("net/http: invalid header field value for {name:?}"));
            }
        }
        (!self.host.bytes().all(in_host)).then(|| "http: invalid Host header".to_owned())
    }

    /// The request as bytes. A `Host` header of the probe replaces the default, an empty `Accept` drops it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let given = |name: &str| self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut lines = format!("GET {} HTTP/1.1\r\n", self.target);
        let authority = self.authority();
        let host = given("host").map_or(authority.as_str(), |(_, value)| value);
        lines.push_str(&format!("Host: {host}\r\n"));
        if given("user-agent").is_none() {
            lines.push_str(&format!("User-Agent: {}\r\n", self.agent));
        }
        if given("accept").is_none() {
            lines.push_str("Accept: */*\r\n");
        }
        for (name, value) in &self.headers {
            let dropped =
                name.eq_ignore_ascii_case("host") || (name.eq_ignore_ascii_case("accept") && value.is_empty());
            if !dropped {
                lines.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        lines.push_str("Connection: close\r\n\r\n");
        lines.into_bytes()
    }

    /// Where a redirect leads, if it stays on this host.
    pub(super) fn redirected(&self, location: &str) -> Option<Self> {
        let rest = location.strip_prefix("https://").map(|r| (true, r));
        let Some((tls, rest)) = rest.or_else(|| location.strip_prefix("http://").map(|r| (false, r))) else {
            return Some(Self { target: target(&join(&self.target, location)), ..self.clone() });
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (authority, if tls { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host == self.host).then(|| Self {
            tls,
            address: SocketAddr::new(self.address.ip(), port),
            target: target(path),
            ..self.clone()
        })
    }
}

/// What golang.org/x/net/http/httpguts takes in a Host header, without the space that no line can carry at its end.
fn in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

/// `host:port`, an IPv6 address in brackets.
pub(in crate::probe) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A relative reference against the path it was found at.
fn join(base: &str, reference: &str) -> String {
    if reference.starts_with('/') {
        return reference.to_owned();
    }
    let path = base.split('?').next().unwrap_or_default();
    match reference.starts_with('?') {
        true => format!("{path}{reference}"),
        false => format!("{}{reference}", &path[..path.rfind('/').map_or(0, |i| i + 1)]),
    }
}

/// A request target from a probe's path: rooted, without fragment, with what a request line cannot carry escaped.
pub(in crate::probe) fn target(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'!' | b'#'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
