//! Which protocol a client and this server share: from the headers of a request to those of the answer. Pure.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::refusal::ErrorResponse;
use super::wire::Codec;
use crate::websocket::{self, names, tokens};

const SPDY: &str = "SPDY/3.1";
const PORT_FORWARD: &str = "portforward.k8s.io";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Versions of `channel.k8s.io` (K8s staging/src/k8s.io/apimachinery/pkg/util/remotecommand): from 3 on terminals are
/// resized, from 4 on the end is told as a Status, from 5 on (WebSocket only) a client can close its input.
const CHANNELS: [(&str, u8); 5] = [
    ("v5.channel.k8s.io", 5),
    ("v4.channel.k8s.io", 4),
    ("v3.channel.k8s.io", 3),
    ("v2.channel.k8s.io", 2),
    ("channel.k8s.io", 1),
];

/// The protocols over a WebSocket, without versions 2 and 3 (K8s cri-streaming
/// pkg/streaming/remotecommand/websocket.go).
const SOCKET_CHANNELS: [(&str, u8); 5] = [
    ("v5.channel.k8s.io", 5),
    ("v4.channel.k8s.io", 4),
    ("v4.base64.channel.k8s.io", 4),
    ("channel.k8s.io", 1),
    ("base64.channel.k8s.io", 1),
];

/// How the streams travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Messages that begin with the number of a channel.
    Socket,
    Spdy,
    /// SPDY in the messages of a WebSocket.
    Tunnel,
}

/// What was agreed on.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) transport: Transport,
    /// Version of `channel.k8s.io`; 1 for port-forward.
    pub(crate) version: u8,
    /// Codec of the messages of a WebSocket.
    pub(super) codec: Codec,
    /// Headers of the answer.
    pub(crate) headers: HeaderMap,
}

/// Agrees on the protocol of exec and attach.
///
/// # Errors
/// The request is not an upgrade, or has no supported protocol.
pub(crate) fn session(headers: &HeaderMap) -> Result<Agreed, ErrorResponse> {
    match upgrade(headers) {
        Some(Upgrade::WebSocket) => socket(headers, &SOCKET_CHANNELS, Transport::Socket),
        Some(Upgrade::Spdy) => spdy(headers, &CHANNELS[1..]),
        None => Err(not_upgraded()),
    }
}

/// Agrees on the protocol of port-forward.
///
/// # Errors
/// Same as [`session`].
pub(crate) fn port_forward(headers: &HeaderMap) -> Result<Agreed, ErrorResponse> {
    match upgrade(headers) {
        Some(Upgrade::WebSocket) if tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL).any(|token| token == TUNNEL) => {
            socket(headers, &[(TUNNEL, 1)], Transport::Tunnel)
        }
        Some(Upgrade::WebSocket) => {
            socket(headers, &[("v4.channel.k8s.io", 1), ("v4.base64.channel.k8s.io", 1)], Transport::Socket)
        }
        Some(Upgrade::Spdy) => spdy(headers, &[(PORT_FORWARD, 1)]),
        None => Err(not_upgraded()),
    }
}

/// The version of a log that comes as text.
pub(crate) const BASE64: u8 = 2;

/// Agrees on the protocol of a log over a WebSocket: bytes as they are, or as base64.
///
/// # Errors
/// Same as [`session`].
pub(crate) fn log(headers: &HeaderMap) -> Result<Agreed, ErrorResponse> {
    socket(headers, &[("binary.k8s.io", 1), ("base64.binary.k8s.io", BASE64)], Transport::Socket)
}

/// The headers of the answer to a watch over a WebSocket. It has no protocol of its own: a single protocol that a
/// client names is accepted (golang.org/x/net/websocket hybi.go).
///
/// # Errors
/// Same as [`session`].
pub(crate) fn watch(headers: &HeaderMap) -> Result<HeaderMap, ErrorResponse> {
    let mut answer = websocket::handshake(headers).map_err(ErrorResponse::bad_request)?;
    let asked: Vec<&str> = websocket::protocols(headers).collect();
    match asked.as_slice() {
        [] => {}
        [one] => {
            let protocol = HeaderValue::from_str(one).map_err(|wrong| ErrorResponse::bad_request(wrong.to_string()))?;
            answer.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        _ => return Err(ErrorResponse::bad_request("a watch has one WebSocket protocol at the most")),
    }
    Ok(answer)
}

/// Whether a client wants a WebSocket.
pub(crate) fn wants_socket(headers: &HeaderMap) -> bool {
    matches!(upgrade(headers), Some(Upgrade::WebSocket))
}

enum Upgrade {
    WebSocket,
    Spdy,
}

fn upgrade(headers: &HeaderMap) -> Option<Upgrade> {
    let has = |name: HeaderName, wanted: &str| names(headers, &name, wanted);
    if !has(header::CONNECTION, "upgrade") {
        None
    } else if has(header::UPGRADE, "websocket") {
        Some(Upgrade::WebSocket)
    } else {
        has(header::UPGRADE, SPDY).then_some(Upgrade::Spdy)
    }
}

fn not_upgraded() -> ErrorResponse {
    ErrorResponse::bad_request("you must upgrade to WebSocket or SPDY/3.1 here (headers Connection and Upgrade)")
}

fn socket(headers: &HeaderMap, served: &[(&'static str, u8)], transport: Transport) -> Result<Agreed, ErrorResponse> {
    let mut answer = websocket::handshake(headers).map_err(ErrorResponse::bad_request)?;
    let asked: Vec<&str> = websocket::protocols(headers).collect();
    if asked.is_empty() {
        // What clients without a subprotocol are taken to speak.
        return Ok(Agreed { transport, version: 1, codec: Codec::Binary, headers: answer });
    }
    let (protocol, version) =
        choose(&asked, served).ok_or_else(|| ErrorResponse::bad_request(disagreement(&asked, served)))?;
    answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    let codec = if protocol.contains("base64.channel") { Codec::Base64 } else { Codec::Binary };
    Ok(Agreed { transport, version, codec, headers: answer })
}

/// K8s staging/src/k8s.io/apimachinery/pkg/util/httpstream Handshake: 400 without protocols, 403 without a shared one.
fn spdy(headers: &HeaderMap, served: &[(&'static str, u8)]) -> Result<Agreed, ErrorResponse> {
    let asked: Vec<&str> = tokens(headers, &STREAM_PROTOCOL).collect();
    if asked.is_empty() {
        return Err(ErrorResponse::bad_request("unable to upgrade: no protocol in X-Stream-Protocol-Version"));
    }
    let Some((protocol, version)) = choose(&asked, served) else {
        let mut problem = ErrorResponse::new(StatusCode::FORBIDDEN, disagreement(&asked, served));
        problem.accepted = served.iter().map(|(name, _)| *name).collect();
        return Err(problem);
    };
    let headers = HeaderMap::from_iter([
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static(SPDY)),
        (STREAM_PROTOCOL, HeaderValue::from_static(protocol)),
    ]);
    Ok(Agreed { transport: Transport::Spdy, version, codec: Codec::Binary, headers })
}

/// The client's first choice that is served.
fn choose(asked: &[&str], served: &[(&'static str, u8)]) -> Option<(&'static str, u8)> {
    asked.iter().find_map(|asked| served.iter().find(|(name, _)| name == asked).copied())
}

fn disagreement(asked: &[&str], served: &[(&'static str, u8)]) -> String {
    let served: Vec<&str> = served.iter().map(|(name, _)| *name).collect();
    let (asked, served) = (asked.join(" "), served.join(" "));
    format!("unable to upgrade: unable to negotiate protocol: client supports [{asked}], server accepts [{served}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn socket(protocols: &'static str) -> HeaderMap {
        headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocols),
        ])
    }

    fn stream(protocols: &'static str) -> HeaderMap {
        headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", protocols)])
    }

    #[test]
    fn the_clients_first_choice_is_taken() {
        let agreed = session(&socket("v6.channel.k8s.io, v5.channel.k8s.io, v4.channel.k8s.io")).unwrap();
        assert_eq!((agreed.transport, agreed.version), (Transport::Socket, 5));
        assert_eq!(agreed.headers["sec-websocket-protocol"], "v5.channel.k8s.io");
        assert_eq!(agreed.headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(session(&socket("channel.k8s.io")).unwrap().version, 1);
        assert_eq!(session(&socket("")).unwrap().version, 1);

        let agreed = session(&stream("v4.channel.k8s.io,v3.channel.k8s.io,v2.channel.k8s.io,channel.k8s.io")).unwrap();
        assert_eq!((agreed.transport, agreed.version), (Transport::Spdy, 4));
        assert_eq!(agreed.headers["x-stream-protocol-version"], "v4.channel.k8s.io");
    }

    #[test]
    fn browsers_speak_base64_and_send_a_token_along() {
        for (protocol, version) in [("base64.channel.k8s.io", 1), ("v4.base64.channel.k8s.io", 4)] {
            let agreed = session(&socket(protocol)).unwrap();
            assert_eq!((agreed.version, agreed.codec), (version, Codec::Base64));
        }
        assert_eq!(port_forward(&socket("v4.base64.channel.k8s.io")).unwrap().codec, Codec::Base64);
        let both = "base64url.bearer.authorization.k8s.io.dG9rZW4, v4.channel.k8s.io";
        assert_eq!(session(&socket(both)).unwrap().headers["sec-websocket-protocol"], "v4.channel.k8s.io");
        assert_eq!(websocket::bearer(&socket(both)), Some("token".to_owned()));
        for none in ["base64url.bearer.authorization.k8s.io.dG9rZW4", "base64url.bearer.authorization.k8s.io.?, a", "a"]
        {
            assert_eq!(websocket::bearer(&socket(none)), None, "{none}");
        }
    }

    #[test]
    fn port_forward_is_spdy_plain_or_in_a_tunnel() {
        assert_eq!(port_forward(&stream("portforward.k8s.io")).unwrap().transport, Transport::Spdy);
        let tunnel = port_forward(&socket("SPDY/3.1+portforward.k8s.io")).unwrap();
        assert_eq!(tunnel.transport, Transport::Tunnel);
        assert_eq!(tunnel.headers["sec-websocket-protocol"], TUNNEL);
        assert_eq!(port_forward(&socket("v4.channel.k8s.io")).unwrap().transport, Transport::Socket);
    }

    #[test]
    fn a_log_is_bytes_or_base64() {
        assert_eq!(log(&socket("")).unwrap().version, 1);
        assert_eq!(log(&socket("base64.binary.k8s.io, binary.k8s.io")).unwrap().version, BASE64);
        assert_eq!(log(&socket("channel.k8s.io")).unwrap_err().code, StatusCode::BAD_REQUEST);
        assert!(wants_socket(&socket("")) && !wants_socket(&stream("portforward.k8s.io")));
    }

    #[test]
    fn what_cannot_be_agreed_on_is_said() {
        let problem = session(&stream("v9.channel.k8s.io")).unwrap_err();
        assert_eq!(problem.code, StatusCode::FORBIDDEN);
        assert_eq!(problem.headers().iter().count(), 4);
        assert_eq!(session(&stream("")).unwrap_err().code, StatusCode::BAD_REQUEST);
        assert!(session(&socket("v6.base64.channel.k8s.io")).unwrap_err().text.contains("v6.base64"));
        assert_eq!(session(&HeaderMap::new()).unwrap_err().code, StatusCode::BAD_REQUEST);
        assert!(port_forward(&stream("v4.channel.k8s.io")).is_err());
    }
}
