//! One small HTTP/1.1 exchange with a JSON body each way, for joining and renewing. Nothing reusable, nothing streamed.

use super::address::BridgeAddress;
use super::dial::{self, DialError};
use crate::net::proxy::Proxy;
use crate::sys::from_json::from_json;
use crate::sys::time::io_within;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// No answer to a join is larger.
const MAX_RESPONSE: usize = 64 << 10;
const MAX_HEADERS: usize = 32;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Dials the bridge for one POST and reads the whole answer; `limit` bounds the request and the answer, not the
/// connect.
pub(super) async fn ask<E: From<DialError>>(
    bridge: &BridgeAddress,
    proxy: &Proxy,
    config: &Arc<rustls::ClientConfig>,
    (path, body): (&str, &[u8]),
    limit: Duration,
    broken: impl FnOnce(io::Error) -> E,
) -> Result<Response, E> {
    let addresses = dial::addresses(bridge, proxy).await?;
    let mut stream = dial::connect(bridge, proxy, addresses, Arc::clone(config)).await?;
    io_within(limit, post_json(&mut stream, &bridge.authority(), path, body)).await.map_err(broken)
}

async fn post_json(stream: &mut dial::Tls, host: &str, path: &str, body: &[u8]) -> io::Result<Response> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await;
        let ended = match read {
            Ok(0) => true,
            Ok(length) => {
                bytes.extend_from_slice(&buffer[..length]);
                false
            }
            // A peer that closes without TLS's goodbye; whether all has come, the length tells.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => true,
            Err(e) => return Err(e),
        };
        if bytes.len() > MAX_RESPONSE {
            return Err(invalid("response is too long"));
        }
        if let Some(response) = parse(&bytes, ended)? {
            return Ok(response);
        }
        if ended {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Parses a response; `None` if more bytes are needed.
fn parse(bytes: &[u8], ended: bool) -> io::Result<Option<Response>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(bytes).map_err(|e| invalid(&format!("not an HTTP response: {e}")))?;
    let httparse::Status::Complete(start) = parsed else { return Ok(None) };
    let status = head.code.unwrap_or_default();
    let body = &bytes[start..];
    let header = |name: &str| {
        let found = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok().map(str::trim)
    };
    if header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
        return Ok(chunked(body)?.map(|body| Response { status, body }));
    }
    match header("content-length") {
        Some(length) => {
            let length: usize = length.parse().map_err(|_| invalid("bad content-length"))?;
            Ok(body.get(..length).map(|body| Response { status, body: body.to_vec() }))
        }
        None => Ok(ended.then(|| Response { status, body: body.to_vec() })),
    }
}

fn chunked(mut rest: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let (start, length) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete((start, length))) => (start, usize::try_from(length).unwrap_or(usize::MAX)),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(invalid("bad chunk size")),
        };
        if length == 0 {
            return Ok(Some(body));
        }
        if length > MAX_RESPONSE {
            return Err(invalid("response is too long"));
        }
        // The chunk and its line end.
        let (Some(chunk), Some(after)) = (rest.get(start..start + length), rest.get(start + length + 2..)) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        rest = after;
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Whether a body is a Kubernetes `Status` for this code, as the bridge's refusals are; a proxy's error page is not.
pub(super) fn is_status(body: &[u8], code: u16) -> bool {
    #[derive(serde::Deserialize)]
    struct Status {
        kind: String,
        code: u16,
    }
    from_json::<Status>(body).is_ok_and(|status| status.kind == "Status" && status.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_kind_of_body_only_when_it_is_whole() {
        let whole = |status, body: &str| Some(Response { status, body: body.as_bytes().to_vec() });
        let fixed = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc";
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        for (bytes, status) in [(fixed.as_slice(), 201), (chunked.as_slice(), 200)] {
            assert_eq!(parse(bytes, false).expect("parses"), whole(status, "abc"));
            for cut in 0..bytes.len() {
                let part = parse(&bytes[..cut], false).expect("a part is no error");
                assert!(part.is_none() || part == whole(status, "abc"), "cut at {cut}: {part:?}");
            }
        }
        let until_end = b"HTTP/1.0 403 Forbidden\r\n\r\nno";
        assert_eq!(parse(until_end, false).expect("parses"), None);
        assert_eq!(parse(until_end, true).expect("parses"), whole(403, "no"));
    }

    #[test]
    fn lies_about_lengths_are_errors() {
        for bad in [
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            assert!(parse(bad.as_bytes(), false).is_err(), "{bad}");
        }
    }
}
