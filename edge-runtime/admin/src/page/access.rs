//! Access to the page: any client of the socket, which belongs to root; at a port, clients with the token. Pure.

use edge_runtime::health::request::{Refusal, target};
use ring::digest::{SHA256, digest};

const FOREIGN: Refusal = "403 Forbidden";

/// Where a request came in. At a port: the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Socket,
    Port(String),
}

/// Path of an allowed request. `data`: whether a path is more than a public file.
pub(super) fn path<'a>(door: &Door, head: &'a [u8], data: fn(&str) -> bool) -> Result<&'a str, Refusal> {
    let (path, query) = target(head)?.split_once('?').unwrap_or((target(head)?, ""));
    let text = std::str::from_utf8(head).map_err(|_| "400 Bad Request")?;
    // A site whose host name resolves to this host (DNS rebinding) would count as ours in a browser.
    if !header(text, "host").is_some_and(is_this_host) {
        return Err(FOREIGN);
    }
    // Another site has a browser ask (Fetch Metadata); a link to the page is harmless.
    let site = header(text, "sec-fetch-site");
    if path != "/" && site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(FOREIGN);
    }
    match door {
        Door::Port(token) if data(path) => {
            let bearer = header(text, "authorization").and_then(|value| value.strip_prefix("Bearer "));
            let shown = bearer.or_else(|| query.split('&').find_map(|one| one.strip_prefix("token=")));
            // Of digests, so that the time tells nothing of the token.
            let of = |text: &str| digest(&SHA256, text.as_bytes());
            match shown.is_some_and(|shown| of(shown).as_ref() == of(token).as_ref()) {
                true => Ok(path),
                false => Err("401 Unauthorized"),
            }
        }
        _ => Ok(path),
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn is_this_host(host: &str) -> bool {
    let is_port =
        |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| host.strip_prefix(name).is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(door: &Door, line: &str, headers: &str) -> Result<String, Refusal> {
        let head = format!("GET {line} HTTP/1.1\r\n{headers}");
        path(door, head.as_bytes(), |path| path.starts_with("/api/")).map(str::to_owned)
    }

    #[test]
    fn at_a_port_data_is_for_the_token_alone_and_files_are_for_all() {
        let port = Door::Port("secret".into());
        let host = "Host: 127.0.0.1:8080";
        assert_eq!(ask(&port, "/page.css", host).as_deref(), Ok("/page.css"));
        assert_eq!(ask(&port, "/api/node?token=secret", host).as_deref(), Ok("/api/node"));
        assert_eq!(ask(&port, "/api/node?x=1&token=secret", host).as_deref(), Ok("/api/node"));
        let bearer = format!("{host}\r\nauthorization: Bearer secret");
        assert_eq!(ask(&port, "/api/node", &bearer).as_deref(), Ok("/api/node"));
        for bad in ["/api/node", "/api/node?token=", "/api/node?token=secret2", "/api/node?token=secre"] {
            assert_eq!(ask(&port, bad, host), Err("401 Unauthorized"), "{bad}");
        }
        let wrong = format!("{host}\r\nAuthorization: Bearer x");
        assert_eq!(ask(&port, "/api/node?token=secret", &wrong), Err("401 Unauthorized"));
        assert_eq!(ask(&Door::Socket, "/api/node", host).as_deref(), Ok("/api/node"));
    }

    #[test]
    fn pages_of_others_get_nothing() {
        let door = Door::Socket;
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80"] {
            assert!(ask(&door, "/", &format!("Host: {host}")).is_ok(), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "localhost:x", "127.0.0.1:80:1", ""] {
            assert_eq!(ask(&door, "/", &format!("Host: {host}")), Err(FOREIGN), "{host}");
        }
        assert_eq!(ask(&door, "/", "X: y"), Err(FOREIGN), "who says no host");
        let from = |site: &str| format!("Host: localhost\r\nSec-Fetch-Site: {site}");
        assert_eq!(ask(&door, "/api/node", &from("cross-site")), Err(FOREIGN));
        assert!(ask(&door, "/api/node", &from("same-origin")).is_ok() && ask(&door, "/", &from("cross-site")).is_ok());
        assert_eq!(path(&door, b"POST / HTTP/1.1\r\nHost: localhost", |_| true), Err("405 Method Not Allowed"));
        assert_eq!(path(&door, b"GET / HTTP/1.1\r\nHost: localhost\r\nA: \xff", |_| true), Err("400 Bad Request"));
    }
}
