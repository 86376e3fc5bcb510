//! One request over HTTP/1.1 (RFC 9112), within bounds.

use std::sync::Arc;

use edge_protocol::message::MAX_BODY;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::http::chunks;
use super::answer::Answer;

/// Bytes and fields of the head.
const HEAD: usize = 16 << 10;
const FIELDS: usize = 64;
const CHUNK: usize = 4_096;
/// Size of a body for which there is always room: a client that announces a large body blocks only others that do.
const SMALL: usize = 16 << 10;

/// A received request, with the memory it holds.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Length of the body; `None` for a chunked one.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    length: Option<usize>,
    /// The client waits for `100 Continue` (RFC 9110, section 10.1.1).
    waits: bool,
    /// Bytes of it.
    size: usize,
}

fn bad(code: u16, why: &str) -> Answer {
    Answer::new(code, why)
}

/// The head, if it is there as a whole.
fn head(bytes: &[u8]) -> Result<Option<Head>, Answer> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let size = match request.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(bad(431, "its head is too long"));
        }
        Err(_) => return Err(bad(400, "that is no HTTP request")),
    };
    if request.method != Some("POST") {
        return Err(bad(405, "requests are sent by POST"));
    }
    let mut head = Head { length: Some(0), waits: false, size };
    for field in request.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("origin") {
            // Browsers send this: a page from another site is not a program on this device.
            return Err(bad(403, "web pages may not send requests"));
        } else if is("transfer-encoding") {
            if !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(bad(501, "the body may come in chunks, and as nothing else"));
            }
            head.length = None;
        } else if is("content-length") && head.length.is_some() {
            let length = std::str::from_utf8(field.value).ok().and_then(|text| text.parse().ok());
            head.length = Some(length.ok_or_else(|| bad(400, "its length is no number"))?);
        } else if is("expect") {
            head.waits = true;
        }
    }
    Ok(Some(head))
}

/// Reads one request. An error is the answer to it; `None` if the client has left.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    bodies: &Arc<Semaphore>,
) -> Result<Body, Option<Answer>> {
    let mut bytes = Vec::new();
    let head = loop {
        match head(&bytes)? {
            Some(head) => break head,
            None => more(stream, &mut bytes).await?,
        }
    };
    bytes.drain(..head.size);
    if head.length.is_some_and(|length| length > MAX_BODY) {
        return Err(Some(bad(413, "the body is too long")));
    }
    let mut room = room(bodies, head.length.unwrap_or(0))?;
    if head.waits {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(|_| None)?;
    }
    if let Some(length) = head.length {
        while bytes.len() < length {
            more(stream, &mut bytes).await?;
        }
        bytes.truncate(length);
        return Ok(Body { bytes, room });
    }
    let mut body = Vec::new();
    while !chunks(&mut bytes, &mut body).map_err(|why| bad(400, &why))? {
        if room.is_none() && bytes.len() + body.len() > SMALL {
            room = self::room(bodies, MAX_BODY)?;
        }
        more(stream, &mut bytes).await?;
    }
    Ok(Body { bytes: body, room })
}

/// Room for a body of `length` bytes.
fn room(bodies: &Arc<Semaphore>, length: usize) -> Result<Option<OwnedSemaphorePermit>, Answer> {
    if length <= SMALL {
        return Ok(None);
    }
    let room = Arc::clone(bodies).try_acquire_many_owned(u32::try_from(length).unwrap_or(u32::MAX));
    room.map(Some).map_err(|_| bad(503, "there are too many long requests"))
}

async fn more(stream: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> Result<(), Option<Answer>> {
    let mut chunk = [0; CHUNK];
    match stream.read(&mut chunk).await {
        Ok(read) if read > 0 => {
            bytes.extend(chunk.get(..read).unwrap_or_default());
            Ok(())
        }
        _ => Err(None),
    }
}

/// Where a request is to go: all that the node reads of it.
pub(super) fn target(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Wanted {
        #[serde(default, rename = "targetURL")]
        target_url: String,
    }
    // Lists would be read as well.
    let body = body.trim_ascii_start().strip_prefix(b"{").map(|_| body)?;
    serde_json::from_slice(body).ok().map(|Wanted { target_url }| target_url)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses bytes as the whole input of a connection.
    fn asked(bytes: &[u8], bodies: usize) -> Result<Vec<u8>, u16> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut client, mut server) = tokio::io::duplex(1 << 20);
            client.write_all(bytes).await.unwrap();
            client.shutdown().await.unwrap();
            match read(&mut server, &Arc::new(Semaphore::new(bodies))).await {
                Ok(body) => Ok(body.bytes),
                Err(Some(answer)) => Err(answer.code()),
                Err(None) => Err(0),
            }
        })
    }

    #[test]
    fn a_body_is_read_as_it_is_meant() {
        let post = |rest: &str| asked(format!("POST /any HTTP/1.1\r\nHost: x\r\n{rest}").as_bytes(), MAX_BODY);
        assert_eq!(post("Content-Length: 2\r\n\r\n{}rest"), Ok(b"{}".to_vec()));
        assert_eq!(post("Expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}"), Ok(b"{}".to_vec()));
        assert_eq!(post("Transfer-Encoding: Chunked\r\n\r\n1;a=b\r\n{\r\n1\r\n}\r\n0\r\n\r\n"), Ok(b"{}".to_vec()));
        assert_eq!(post("\r\n"), Ok(vec![]));
    }

    #[test]
    fn malformed_or_too_large_request_gets_an_error() {
        let long = "x".repeat(HEAD);
        let ext = "y".repeat(HEAD + CHUNK);
        let fields = "a: b\r\n".repeat(FIELDS + 1);
        for (text, code) in [
            ("\x16\x03\x01".to_owned(), 400),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), 405),
            (format!("POST /{long}"), 431),
            (format!("POST / HTTP/1.1\r\n{fields}\r\n"), 431),
            ("POST / HTTP/1.1\r\nOrigin: http://evil.example\r\n\r\n".to_owned(), 403),
            ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_owned(), 400),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n".to_owned(), 400),
            (format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", MAX_BODY + 1), 413),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(), 501),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n".to_owned(), 400),
            (format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", MAX_BODY + 1), 400),
            (format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;{ext}"), 400),
            ("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n{}".to_owned(), 0),
            ("POST / HTTP/1.1\r\n".to_owned(), 0),
        ] {
            assert_eq!(asked(text.as_bytes(), MAX_BODY), Err(code), "{:.80}", text);
        }
        let long = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", SMALL + 1);
        assert_eq!(asked(long.as_bytes(), SMALL), Err(503), "no room");
        let chunk = "x".repeat(SMALL + 1);
        let long = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{chunk}\r\n", chunk.len());
        assert_eq!(asked(long.as_bytes(), SMALL), Err(503), "no room");
        assert_eq!(asked(format!("{long}0\r\n\r\n").as_bytes(), MAX_BODY), Ok(chunk.into_bytes()));
        assert_eq!(asked(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n{ }", 0), Ok(b"{ }".to_vec()));
    }

    #[test]
    fn only_the_target_of_a_body_is_parsed() {
        let body = br#"{"method":"POST","targetURL":"http://a/b","payload":{"x":[1]}}"#;
        assert_eq!(target(body).as_deref(), Some("http://a/b"));
        assert_eq!(target(b"{}").as_deref(), Some(""), "which no rule has");
        for bad in [&b""[..], b"[]", b"{\"targetURL\":1}", b"{", &[0xff]] {
            assert_eq!(target(bad), None);
        }
        assert_eq!(target("[".repeat(MAX_BODY).as_bytes()), None);
    }
}
