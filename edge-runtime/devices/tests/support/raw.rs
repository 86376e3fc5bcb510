//! A client that sends whatever a test likes, byte for byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::PATIENCE;

/// Return codes of CONNACK.
pub(crate) const TAKEN: u8 = 0;

pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    bytes: Vec<u8>,
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let mut text = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    text.extend(bytes);
    text
}

pub(crate) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    let mut length = body.len();
    loop {
        let digit = u8::try_from(length & 127).unwrap();
        length >>= 7;
        packet.push(if length > 0 { digit | 128 } else { digit });
        if length == 0 {
            packet.extend(body);
            return packet;
        }
    }
}

pub(crate) fn hello(id: &str, keep_alive: u16) -> Vec<u8> {
    let mut body = b"\x00\x04MQTT\x04\x02".to_vec();
    body.extend(keep_alive.to_be_bytes());
    body.extend(text(id.as_bytes()));
    packet(0x10, &body)
}

/// A client with a will, which another one may hear.
pub(crate) fn hello_with_will(id: &str, topic: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = b"\x00\x04MQTT\x04\x0e\x00\x00".to_vec();
    body.extend([text(id.as_bytes()), text(topic.as_bytes()), text(payload)].concat());
    packet(0x10, &body)
}

pub(crate) fn subscribe(id: u16, filter: &str, qos: u8) -> Vec<u8> {
    packet(0x82, &[&id.to_be_bytes()[..], &text(filter.as_bytes()), &[qos]].concat())
}

/// `first`: type and flags. With an id if it has QoS 1 or 2.
pub(crate) fn publish(first: u8, topic: &str, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut body = text(topic.as_bytes());
    if first & 6 != 0 {
        body.extend(id.to_be_bytes());
    }
    body.extend(payload);
    packet(first, &body)
}

impl Raw {
    /// Has said nothing.
    pub(crate) fn call(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, bytes: Vec::new() }
    }

    /// Is a client.
    pub(crate) fn client(port: u16, id: &str) -> Self {
        let mut raw = Self::call(port);
        assert!(raw.is_taken(id), "{id} is refused");
        raw
    }

    /// Says CONNECT with this id, and whether it is accepted.
    pub(crate) fn is_taken(&mut self, id: &str) -> bool {
        self.say(&hello(id, 0));
        self.next() == Some(vec![0x20, 2, 0, TAKEN])
    }

    pub(crate) fn subscribed(port: u16, id: &str, filter: &str, qos: u8) -> Self {
        let mut raw = Self::client(port, id);
        raw.say(&subscribe(1, filter, qos));
        assert_eq!(raw.next(), Some(vec![0x90, 3, 0, 1, qos.min(1)]));
        raw
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        // A client that was cut off sees that when it reads.
        let _ = self.stream.write_all(bytes);
    }

    /// The next packet as a whole; none if the connection is over.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = self.length() {
                return Some(self.bytes.drain(..length).collect());
            }
            let mut chunk = [0; 65_536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.bytes.extend(&chunk[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("nothing comes within {PATIENCE:?}")
                }
                Err(_) => return None,
            }
        }
    }

    fn length(&self) -> Option<usize> {
        let mut length = 0;
        for (at, byte) in self.bytes.get(1..)?.iter().enumerate() {
            length |= usize::from(byte & 127) << (7 * at);
            if byte & 128 == 0 {
                let whole = 2 + at + length;
                return (self.bytes.len() >= whole).then_some(whole);
            }
        }
        None
    }

    /// Receives packets until the connection ends.
    pub(crate) fn rest(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Whether it is served: it is answered.
    pub(crate) fn is_served(&mut self) -> bool {
        self.say(&[0xc0, 0]);
        self.next() == Some(vec![0xd0, 0])
    }

    /// Whether nothing comes within this time.
    pub(crate) fn is_quiet(&mut self, time: Duration) -> bool {
        assert!(self.bytes.is_empty(), "{:x?}", self.bytes);
        self.stream.set_read_timeout(Some(time)).unwrap();
        let read = self.stream.peek(&mut [0; 1]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    /// Is cut, as by the way.
    pub(crate) fn cut(&self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }
}
