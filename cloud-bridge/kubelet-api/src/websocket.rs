//! The handshake of a WebSocket (RFC 6455, 4.2): from the headers of a request to those of its answer. Pure.

use async_tungstenite::tungstenite::handshake::derive_accept_key;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The words of a header that is a list.
pub(crate) fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// Whether a header names this, in whatever case.
pub(crate) fn names(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted))
}

/// What a subprotocol begins with that is a bearer token: browsers can send no other header.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// The subprotocols that a client offers, without a token.
pub fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL).filter(|token| !token.starts_with(BEARER))
}

/// The bearer token among the subprotocols of a WebSocket (K8s apiserver pkg/authentication/request/websocket/protocol.go): there
/// must be one, and another subprotocol beside it for the answer.
pub fn bearer(headers: &HeaderMap) -> Option<String> {
    if !names(headers, &header::CONNECTION, "upgrade") || !names(headers, &header::UPGRADE, "websocket") {
        return None;
    }
    protocols(headers).next()?;
    let mut all = tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL).filter_map(|token| token.strip_prefix(BEARER));
    let token = all.next().filter(|_| all.next().is_none())?;
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    String::from_utf8(bytes).ok().filter(|token| !token.is_empty())
}

/// Checks the handshake and gives the headers of the answer with status 101.
///
/// # Errors
/// It is not a handshake: names the missing part, for the client.
pub fn handshake(headers: &HeaderMap) -> Result<HeaderMap, &'static str> {
    if !names(headers, &header::CONNECTION, "upgrade") || !names(headers, &header::UPGRADE, "websocket") {
        return Err("a websocket upgrade is expected here");
    }
    if !names(headers, &header::SEC_WEBSOCKET_VERSION, "13") {
        return Err("Sec-WebSocket-Version: 13 is expected");
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).ok_or("no Sec-WebSocket-Key")?;
    let accept =
        HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(|_| "Sec-WebSocket-Key is no key")?;
    Ok(HeaderMap::from_iter([
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(version: &'static str) -> HeaderMap {
        [
            (header::CONNECTION, "keep-alive, Upgrade"),
            (header::UPGRADE, "WebSocket"),
            (header::SEC_WEBSOCKET_VERSION, version),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        ]
        .into_iter()
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .collect()
    }

    #[test]
    fn the_key_of_the_rfc_gets_the_answer_of_the_rfc() {
        let answer = handshake(&headers("13")).unwrap();
        assert_eq!(answer[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn anything_but_an_upgrade_is_refused() {
        assert!(handshake(&headers("12")).is_err());
        for name in [header::CONNECTION, header::UPGRADE, header::SEC_WEBSOCKET_KEY] {
            let mut headers = headers("13");
            headers.remove(name);
            assert!(handshake(&headers).is_err());
        }
    }
}
