//! Server and client without sockets, for a fuzzer. The first byte decides how the others are split.

use std::time::{Duration, Instant};

use super::client::exchange::Exchange as Client;
use super::message::framed;
use super::server::exchange::Exchange as Server;
use super::server::room::Rooms;
use super::{Code, Status};

/// Number of bytes after which a session must have produced its output.
const MUCH: usize = 64 << 20;

/// Feeds a server with the bytes of a client. Calls are answered with their own message, or refused. Returns the number
/// of calls.
#[doc(hidden)]
pub fn fuzz_server(bytes: &[u8]) -> usize {
    let Some((cut, bytes)) = bytes.split_first() else { return 0 };
    let (mut now, mut calls, mut said) = (Instant::now(), 0, 0);
    let rooms = Rooms::default();
    let Ok(mut server) = Server::new(now) else { return 0 };
    for part in bytes.chunks(usize::from(*cut) * 16 + 1) {
        now += Duration::from_millis(u64::from(*cut));
        let mut work = || {
            server.receive(now, part)?;
            if let Some((id, length)) = server.wants()
                && let Some(room) = rooms.answer(length)
            {
                server.grant(now, id, room)?;
            }
            while let Some(request) = server.request() {
                calls += 1;
                let length = request.message.len();
                let answer = framed(request.message).ok().zip(rooms.answer(length));
                let refusal = Status::new(Code::NotFound, request.path);
                let answer = if length % 2 == 0 { answer.ok_or(refusal) } else { Err(refusal) };
                server.answer(now, request.stream, answer)?;
            }
            loop {
                let mut out = Vec::new();
                server.output(&mut out)?;
                said += out.len();
                assert!(said < MUCH, "a session that never stops");
                if out.is_empty() {
                    return Ok::<(), sampan_nghttp2::Error>(());
                }
            }
        };
        if work().is_err() || server.is_over() {
            break;
        }
        server.wake();
    }
    calls
}

/// Feeds a client that reads a stream with the bytes of a server. Returns the number of messages.
#[doc(hidden)]
pub fn fuzz_stream(bytes: &[u8]) -> usize {
    let Some((cut, bytes)) = bytes.split_first() else { return 0 };
    let (mut now, mut messages) = (Instant::now(), 0);
    let Ok(mut client) = Client::new(now) else { return 0 };
    if client.stream("/a.B/C", &[*cut; 9]).is_err() {
        return 0;
    }
    for part in bytes.chunks(usize::from(*cut) * 16 + 1) {
        now += Duration::from_millis(u64::from(*cut));
        let mut out = Vec::new();
        if client.output(&mut out).is_err() || client.receive(now, part).is_err() {
            break;
        }
        // Some are left until more has arrived.
        for _ in 0..=*cut % 4 {
            messages += usize::from(client.message().is_some());
        }
        if client.outcome().is_some() || client.is_over() {
            break;
        }
    }
    while client.message().is_some() {
        messages += 1;
    }
    messages
}

/// Feeds a client that calls repeatedly with the bytes of a server. Returns the number of successful answers.
#[doc(hidden)]
pub fn fuzz_client(bytes: &[u8]) -> usize {
    let Some((cut, bytes)) = bytes.split_first() else { return 0 };
    let (mut now, mut answers, mut calls) = (Instant::now(), 0, true);
    let Ok(mut client) = Client::new(now) else { return 0 };
    for part in bytes.chunks(usize::from(*cut) * 16 + 1) {
        now += Duration::from_millis(u64::from(*cut));
        if std::mem::take(&mut calls) && client.call("/a.B/C", &[*cut; 9], Duration::from_secs(1)).is_err() {
            break;
        }
        let mut out = Vec::new();
        if client.output(&mut out).is_err() || client.receive(now, part).is_err() {
            break;
        }
        if let Some(outcome) = client.outcome() {
            calls = true;
            answers += usize::from(matches!(outcome, super::client::Outcome::Answered(Ok(_))));
        }
        if !client.is_usable() || client.is_over() {
            break;
        }
    }
    answers
}
