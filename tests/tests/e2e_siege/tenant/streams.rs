//! Streams of a running pod that are never read: `exec`, `logs -f` and `port-forward`.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::{POD, Tenant, path};
use crate::client::{Endpoint, Stream};
use crate::siege::{Attack, Done};

/// Concurrent streams of one worker.
const KEPT: usize = 20;
/// Number of streams of one port-forward: the bridge's limit for one connection.
const FORWARDS: u32 = 255;

/// A header block of SPDY/3.1, in an uncompressed block of DEFLATE (RFC 1950, RFC 1951). The first one of a connection
/// starts the stream.
fn block(first: bool, fields: &[(&str, String)]) -> Vec<u8> {
    let number = |length: usize| u32::try_from(length).expect("a short text").to_be_bytes();
    let mut plain = number(fields.len()).to_vec();
    for (name, value) in fields {
        for text in [*name, value.as_str()] {
            plain.extend(number(text.len()));
            plain.extend(text.as_bytes());
        }
    }
    let length = u16::try_from(plain.len()).expect("a short block");
    let start: &[u8] = if first { &[0x78, 1] } else { &[] };
    [start, &[0], &length.to_le_bytes(), &(!length).to_le_bytes(), &plain].concat()
}

/// SYN_STREAM.
fn open(id: u32, first: bool, fields: &[(&str, String)]) -> Vec<u8> {
    let payload = [&id.to_be_bytes()[..], &[0; 6], &block(first, fields)].concat();
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&[0x80, 3, 0, 1, 0], &length[1..], &payload].concat()
}

fn data(id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&id.to_be_bytes()[..], &[0], &length[1..], payload].concat()
}

/// A connection whose upgrade was answered with 101 or 200.
fn upgraded(endpoint: &Endpoint, request: &str, headers: &str) -> Option<Stream> {
    let mut stream = endpoint.connect().ok()?;
    let token = endpoint.token();
    write!(stream, "{request} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{headers}\r\n").ok()?;
    stream.flush().ok()?;
    stream.sock.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
    let mut head = [0; 1024];
    let read = stream.read(&mut head).ok()?;
    let said = String::from_utf8_lossy(&head[..read]).into_owned();
    (said.starts_with("HTTP/1.1 101") || said.starts_with("HTTP/1.1 200")).then_some(stream)
}

const SPDY: &str = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\n";
const WEBSOCKET: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Keeps up to [`KEPT`] open, and closes the oldest for a new one.
fn keep(until: Instant, mut begin: impl FnMut() -> Option<Stream>) -> Done {
    let (mut kept, mut begun) = (Vec::new(), 0_u64);
    while Instant::now() < until {
        begun += 1;
        match begin() {
            Some(stream) => kept.push(stream),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
        if kept.len() > KEPT {
            kept.remove(0);
        }
    }
    begun.into()
}

pub(super) fn attacks(tenant: &Tenant) -> Vec<Attack<'_>> {
    let endpoint = &tenant.endpoint;
    let pod = path(&format!("pods/{POD}"));
    let (exec, log, forward) = (
        format!("GET {pod}/exec?command=yes&stdout=true"),
        format!("GET {pod}/log?follow=1"),
        format!("POST {pod}/portforward"),
    );
    let halves = forward.clone();
    let (websocket, forwarding) = (
        format!("{WEBSOCKET}sec-websocket-protocol: v4.channel.k8s.io\r\n"),
        format!("{SPDY}x-stream-protocol-version: portforward.k8s.io\r\n"),
    );
    let halved = forwarding.clone();
    let field = |kind: &str, id: u32| {
        [("streamtype", kind.to_owned()), ("port", "8080".to_owned()), ("requestid", id.to_string())]
    };
    vec![
        Attack::new("exec whose output nobody reads", move |_, until| {
            keep(until, || upgraded(endpoint, &exec, &websocket))
        }),
        Attack::new("logs that nobody reads", move |_, until| keep(until, || upgraded(endpoint, &log, ""))),
        Attack::new("port-forward, data without an end", move |_, until| {
            let much = vec![b'x'; 64 << 10];
            keep(until, || {
                let mut stream = upgraded(endpoint, &forward, &forwarding)?;
                for at in 0..FORWARDS / 2 {
                    let pair = [
                        open(4 * at + 1, at == 0, &field("error", at)),
                        open(4 * at + 3, false, &field("data", at)),
                        data(4 * at + 3, &much),
                    ];
                    // The bridge may stop reading; the streams stay open.
                    if stream.write_all(&pair.concat()).and_then(|()| stream.flush()).is_err() {
                        break;
                    }
                }
                Some(stream)
            })
        }),
        Attack::new("port-forward, halves of pairs", move |_, until| {
            let bytes: Vec<u8> = (0..2_000).flat_map(|_| data(1, b"x")).collect();
            keep(until, || {
                let mut stream = upgraded(endpoint, &halves, &halved)?;
                for at in 0..FORWARDS {
                    let half = [open(2 * at + 1, at == 0, &field("data", at % 100)), bytes.clone()].concat();
                    if stream.write_all(&half).and_then(|()| stream.flush()).is_err() {
                        break;
                    }
                }
                Some(stream)
            })
        }),
    ]
}

#[test]
fn a_header_block_is_stored() {
    assert_eq!(
        block(true, &[("a", "b".to_owned())]),
        [&[0x78, 1, 0, 14, 0, 241, 255][..], &[0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 1, b'b']].concat()
    );
}
