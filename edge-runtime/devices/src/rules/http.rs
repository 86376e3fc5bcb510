//! One request to a server on this device (RFC 9112), at its loopback address: without encryption, redirects or
//! retries. The answer is untrusted, and has bounds.

use std::io;
use std::net::Ipv4Addr;

use edge_protocol::message::{CallFailure, CallResult, MAX_BODY};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes and fields of the head of an answer.
const HEAD: usize = 16 << 10;
const FIELDS: usize = 64;
const CHUNK: usize = 4_096;

/// Header fields of the connection, not of the message (RFC 9110, section 7.6.1), and those that this client sets.
const OURS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn is_ours(name: &str) -> bool {
    OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

/// Encodes a request; `None` if a server would read it as another request.
fn request(port: u16, method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> Option<Vec<u8>> {
    let token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let visible = |byte: u8| byte.is_ascii_graphic();
    let field = |value: &str| value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
    let sound = token(method)
        && path.starts_with('/')
        && path.bytes().all(visible)
        && headers.iter().all(|(name, value)| token(name) && field(value));
    if !sound {
        return None;
    }
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n");
    for (name, value) in headers.iter().filter(|(name, _)| !is_ours(name)) {
        head.extend([name, ": ", value, "\r\n"]);
    }
    if !body.is_empty() || !matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS") {
        head.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend(body);
    Some(bytes)
}

/// How long the body of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Of(usize),
    Chunked,
    UntilEnd,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
    length: Length,
    /// Bytes of it.
    size: usize,
}

/// Parses the head of a final answer, if it is complete; removes earlier ones (1xx).
fn head(bytes: &mut Vec<u8>, method: &str) -> Result<Option<Head>, String> {
    loop {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let size = match response.parse(bytes) {
            Ok(httparse::Status::Complete(size)) => size,
            Ok(httparse::Status::Partial) if bytes.len() > HEAD => return Err("its head has no end".to_owned()),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("it is not HTTP: {error}")),
        };
        let status = response.code.unwrap_or(0);
        if status == 101 || status < 100 {
            return Err(format!("its status is {status}"));
        }
        if status < 200 {
            bytes.drain(..size);
            continue;
        }
        let mut length = Length::UntilEnd;
        let mut headers = Vec::new();
        for field in response.headers.iter() {
            let value = String::from_utf8_lossy(field.value).into_owned();
            if field.name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(format!("its body comes as {value:?}"));
                }
                length = Length::Chunked;
            } else if field.name.eq_ignore_ascii_case("content-length") && length != Length::Chunked {
                length = Length::Of(value.parse().map_err(|_| format!("its length is {value:?}"))?);
            }
            if !is_ours(field.name) {
                headers.push((field.name.to_owned(), value));
            }
        }
        if method == "HEAD" || matches!(status, 204 | 304) {
            length = Length::Of(0);
        }
        return Ok(Some(Head { status, headers, length, size }));
    }
}

/// Takes what is there of a chunked body (RFC 9112, section 7.1) into `body`. Whether it has ended.
pub(super) fn chunks(bytes: &mut Vec<u8>, body: &mut Vec<u8>) -> Result<bool, String> {
    loop {
        let (at, size) = match httparse::parse_chunk_size(bytes) {
            Ok(httparse::Status::Complete((at, size))) => (at, usize::try_from(size).unwrap_or(usize::MAX)),
            Ok(httparse::Status::Partial) if bytes.len() <= HEAD => return Ok(false),
            Ok(httparse::Status::Partial) | Err(_) => return Err("its body has a chunk without a size".to_owned()),
        };
        if size == 0 {
            // Trailers are ignored.
            return Ok(true);
        }
        if size > MAX_BODY - body.len() {
            return Err(too_long());
        }
        let Some(chunk) = bytes.get(at..at + size) else { return Ok(false) };
        let Some(end) = bytes.get(at + size..at + size + 2) else { return Ok(false) };
        if end != b"\r\n" {
            return Err("its body has a chunk of another size".to_owned());
        }
        body.extend(chunk);
        bytes.drain(..at + size + 2);
    }
}

fn too_long() -> String {
    format!("its body has more than {MAX_BODY} bytes")
}

/// Reads an answer. An error is for people.
async fn read(stream: &mut (impl AsyncReadExt + Unpin), method: &str) -> Result<CallResult, String> {
    let (mut bytes, mut body, mut found) = (Vec::new(), Vec::new(), None);
    let mut chunk = [0; CHUNK];
    loop {
        if found.is_none()
            && let Some(head) = head(&mut bytes, method)?
        {
            bytes.drain(..head.size);
            found = Some(head);
        }
        let length = found.as_ref().map(|head| head.length);
        let done = match length {
            None => false,
            Some(Length::Chunked) => chunks(&mut bytes, &mut body)?,
            Some(Length::Of(length)) if length > MAX_BODY => return Err(too_long()),
            Some(Length::Of(length)) => bytes.len() >= length,
            Some(Length::UntilEnd) if bytes.len() > MAX_BODY => return Err(too_long()),
            Some(Length::UntilEnd) => false,
        };
        let ended = !done && {
            let read = stream.read(&mut chunk).await.map_err(|error| error.to_string())?;
            bytes.extend(chunk.get(..read).unwrap_or_default());
            read == 0
        };
        match (done, length) {
            (true, _) | (false, Some(Length::UntilEnd)) if done || ended => {
                let Some(Head { status, headers, length, .. }) = found else { return Err("it has no head".to_owned()) };
                match length {
                    Length::Of(length) => body = std::mem::take(&mut bytes).into_iter().take(length).collect(),
                    Length::UntilEnd => body = std::mem::take(&mut bytes),
                    Length::Chunked => {}
                }
                return Ok(CallResult::Http { status, headers, body });
            }
            _ if ended => return Err("it ended too early".to_owned()),
            _ => {}
        }
    }
}

/// Result of a call that has failed.
pub(super) fn failed(failure: CallFailure, why: &str) -> CallResult {
    CallResult::Failed { failure, why: why.to_owned() }
}

/// Asks the server at this port.
pub(super) async fn ask(port: u16, method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> CallResult {
    let Some(request) = request(port, method, path, headers, body) else {
        return failed(CallFailure::Refused, "that is no HTTP request");
    };
    let mut stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(stream) => stream,
        Err(error) => return failed(CallFailure::Unreachable, &format!("port {port} of the device: {error}")),
    };
    let broken = |why: &str| failed(CallFailure::Broken, &format!("the answer of port {port} of the device: {why}"));
    let (mut from, mut to) = stream.split();
    let write = async {
        // A server may answer before it has read everything, and stop reading.
        let written: io::Result<()> = to.write_all(&request).await;
        if written.is_err() {
            std::future::pending::<()>().await
        }
        std::future::pending::<CallResult>().await
    };
    tokio::select! {
        never = write => never,
        answer = read(&mut from, method) => answer.unwrap_or_else(|why| broken(&why)),
    }
}

#[cfg(test)]
mod tests;
