//! The connections of the monitor's socket: daemon and command line. Bytes in, calls out, answers and events back;
//! knows nothing of what a call does.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use nix::libc::{EMFILE, ENFILE};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use serde::Serialize;

use super::token;
use crate::frame;
use crate::logs::cri::Stream;
use crate::protocol::{Call, Event};
use sampan_sys::vec_map::VecMap;

/// More connections than any node needs; beyond, the newcomer is refused.
const MAX_CLIENTS: usize = 16;
/// A client that lets this much pile up is dropped, never waited for.
const MAX_UNSENT: usize = 1 << 20;
/// Reads of one client in a turn.
const AT_ONCE: usize = 16;

/// Unsent output from which on the container has to wait.
const BEHIND: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct Clients {
    next: u64,
    /// Closed to refuse a connection when no other descriptor is left: a pending connection would keep the listener
    /// ready, and the loop busy.
    spare: Option<File>,
    open: VecMap<u64, Client>,
}

struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Has said hello: gets events.
    greeted: bool,
    /// Container whose output it is shown.
    attached: Option<String>,
    /// Registered for writability.
    waits_to_write: bool,
}

impl Clients {
    /// Takes all connections that wait.
    pub(crate) fn accept(&mut self, listener: &UnixListener, epoll: &Epoll) {
        loop {
            if self.spare.is_none() {
                self.spare = File::open("/dev/null").ok();
            }
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if matches!(e.raw_os_error(), Some(EMFILE | ENFILE)) && self.spare.take().is_some() => {
                    // The kernel takes a descriptor before it checks for pending connections.
                    match listener.accept() {
                        Ok(_) => continue,
                        Err(_) => return,
                    }
                }
                Err(_) => return,
            };
            if self.open.len() >= MAX_CLIENTS || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let serial = self.next;
            if epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, token::client(serial))).is_err() {
                continue;
            }
            self.next += 1;
            let client = Client {
                stream,
                received: Vec::new(),
                unsent: Vec::new(),
                greeted: false,
                attached: None,
                waits_to_write: false,
            };
            self.open.insert(serial, client);
        }
    }

    /// Reads input and returns the calls, each or the reason why it is malformed. Drops a connection that has ended or
    /// violates the framing.
    pub(crate) fn read(&mut self, serial: u64) -> Vec<Result<Call, (u64, String)>> {
        let Some(client) = self.open.get_mut(&serial) else { return Vec::new() };
        let mut calls = Vec::new();
        let alive = client.receive(&mut calls);
        if !alive {
            self.open.remove(&serial);
        }
        calls
    }

    pub(crate) fn greet(&mut self, serial: u64) {
        if let Some(client) = self.open.get_mut(&serial) {
            client.greeted = true;
        }
    }

    pub(crate) fn tell_all(&mut self, event: &Event, epoll: &Epoll) {
        let greeted: Vec<u64> = self.open.iter().filter(|(_, c)| c.greeted).map(|(serial, _)| *serial).collect();
        for serial in greeted {
            self.send(serial, event, epoll);
        }
    }

    pub(crate) fn attach(&mut self, serial: u64, id: &str) {
        if let Some(client) = self.open.get_mut(&serial) {
            client.attached = Some(id.to_owned());
        }
    }

    /// Sends output of container `id` to the attached clients.
    pub(crate) fn show(&mut self, id: &str, stream: Stream, bytes: &[u8], epoll: &Epoll) {
        let attached = self.attached_to(id);
        if !attached.is_empty() {
            let event = Event::Output { stream, data: bytes.to_vec() };
            attached.into_iter().for_each(|serial| self.send(serial, &event, epoll));
        }
    }

    /// The output of container `id` has ended.
    pub(crate) fn show_end(&mut self, id: &str, epoll: &Epoll) {
        for serial in self.attached_to(id) {
            self.send(serial, &Event::OutputEnd {}, epoll);
            if let Some(client) = self.open.get_mut(&serial) {
                client.attached = None;
            }
        }
    }

    /// Whether a client attached to container `id` still has much to read.
    pub(crate) fn is_behind(&self, id: &str) -> bool {
        self.open.values().any(|client| client.is_behind(id))
    }

    /// Lets go of those.
    pub(crate) fn drop_behind(&mut self, id: &str) {
        self.open.retain(|_, client| !client.is_behind(id));
    }

    fn attached_to(&self, id: &str) -> Vec<u64> {
        let attached = self.open.iter().filter(|(_, client)| client.attached.as_deref() == Some(id));
        attached.map(|(serial, _)| *serial).collect()
    }

    /// The socket takes bytes again.
    pub(crate) fn writable(&mut self, serial: u64, epoll: &Epoll) {
        if let Some(client) = self.open.get_mut(&serial)
            && client.flush(serial, epoll).is_err()
        {
            self.open.remove(&serial);
        }
    }

    /// An answer or an event.
    pub(crate) fn send(&mut self, serial: u64, message: &impl Serialize, epoll: &Epoll) {
        let Some(client) = self.open.get_mut(&serial) else { return };
        let sent = frame::encode(message, &mut client.unsent).map_err(io::Error::other);
        if sent.and_then(|()| client.flush(serial, epoll)).is_err() || client.unsent.len() > MAX_UNSENT {
            self.open.remove(&serial);
        }
    }
}

impl Client {
    fn is_behind(&self, id: &str) -> bool {
        self.attached.as_deref() == Some(id) && self.unsent.len() > BEHIND
    }

    fn receive(&mut self, calls: &mut Vec<Result<Call, (u64, String)>>) -> bool {
        let mut buffer = [0; 4096];
        let mut left = AT_ONCE;
        let open = loop {
            // The remaining input causes another event. Other clients have their turn first, so that no client makes
            // answers accumulate.
            if left == 0 {
                break true;
            }
            left -= 1;
            match self.stream.read(&mut buffer) {
                Ok(0) => break false,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
            loop {
                match frame::take(&mut self.received) {
                    Ok(Some(frame)) => calls.push(understand(&frame)),
                    Ok(None) => break,
                    Err(_) => return false,
                }
            }
        };
        if self.received.is_empty() {
            self.received = Vec::new();
        }
        open
    }

    fn flush(&mut self, serial: u64, epoll: &Epoll) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        let waits = !self.unsent.is_empty();
        if waits != self.waits_to_write {
            let flags = if waits { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            epoll.modify(&self.stream, &mut EpollEvent::new(flags, token::client(serial)))?;
            self.waits_to_write = waits;
        }
        Ok(())
    }
}

/// A call of a newer protocol still gets its answer, by its number.
fn understand(bytes: &[u8]) -> Result<Call, (u64, String)> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        #[serde(default)]
        seq: u64,
    }
    frame::decode(bytes).map_err(|e| {
        let seq = frame::decode::<Numbered>(bytes).map_or(0, |n| n.seq);
        (seq, format!("not understood: {}", std::error::Error::source(&e).map_or(e.to_string(), ToString::to_string)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_newer_daemon_are_answered_not_fatal() {
        assert!(understand(br#"{"seq":3,"op":"list","extra":{"a":1}}"#).is_ok());
        let (seq, error) = understand(br#"{"seq":7,"op":"checkpoint","id":"x"}"#).unwrap_err();
        assert_eq!(seq, 7);
        assert!(error.contains("checkpoint"), "{error}");
    }
}
