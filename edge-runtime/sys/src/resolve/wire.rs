//! DNS messages (RFC 1035, AAAA by RFC 3596): encodes one query and parses its answer. Pure; answers are untrusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    A,
    Aaaa,
}

impl RecordType {
    fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Possibly none: the name exists, but has no record of this type.
    Addresses(Vec<IpAddr>),
    NoSuchName,
    /// The server could not or would not say.
    Failed,
}

const CLASS_IN: u16 = 1;
const HEADER: usize = 12;

/// Whether this can be asked for: labels of 1 to 63 bytes, 253 in all. Underscores occur in real names.
pub fn is_host_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    name.len() <= 253 && name.split('.').all(|l| (1..=63).contains(&l.len()) && l.bytes().all(plain))
}

/// A query for a name that [`is_host_name`], with recursion wanted.
pub fn query(id: u16, name: &str, record: RecordType) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEADER + name.len() + 6);
    packet.extend(id.to_be_bytes());
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]); // RD; one question
    packet.extend(question(name, record));
    packet
}

fn question(name: &str, record: RecordType) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len() + 6);
    for label in name.split('.') {
        // Checked by `is_host_name`; a longer one would be cut off, not wrap around.
        let length = u8::try_from(label.len().min(63)).unwrap_or(63);
        bytes.push(length);
        bytes.extend(label.bytes().take(63));
    }
    bytes.push(0);
    bytes.extend(record.number().to_be_bytes());
    bytes.extend(CLASS_IN.to_be_bytes());
    bytes
}

/// The answer to exactly this question; none if the packet is anything else.
pub fn answer(packet: &[u8], id: u16, name: &str, record: RecordType) -> Option<Answer> {
    let asked = question(name, record);
    let is_reply = u16_at(packet, 0)? == id && packet.get(2)? & 0x80 != 0 && u16_at(packet, 4)? == 1;
    let repeated = packet.get(HEADER..HEADER + asked.len())?;
    if !is_reply || !repeated.eq_ignore_ascii_case(&asked) {
        return None;
    }
    match packet.get(3)? & 0x0f {
        0 => {}
        3 => return Some(Answer::NoSuchName),
        _ => return Some(Answer::Failed),
    }
    let mut at = HEADER + asked.len();
    let mut found = Vec::new();
    for _ in 0..u16_at(packet, 6)? {
        // A truncated packet ends here; records before it are valid.
        let Some((next, address)) = record_at(packet, at, record) else { break };
        found.extend(address);
        at = next;
    }
    Some(Answer::Addresses(found))
}

/// Whether an answer ends before its end (RFC 1035, 4.1.1, TC).
pub fn is_cut_off(packet: &[u8]) -> bool {
    packet.get(2).is_some_and(|flags| flags & 0x02 != 0)
}

/// One resource record: where the next one begins, and the address if it is of the wanted type. A chain of
/// CNAMEs needs no following: the server sends the addresses of its end in the same answer.
fn record_at(packet: &[u8], at: usize, wanted: RecordType) -> Option<(usize, Option<IpAddr>)> {
    let fixed = skip_name(packet, at)?;
    let (kind, class) = (u16_at(packet, fixed)?, u16_at(packet, fixed + 2)?);
    let data = fixed + 10;
    let end = data + usize::from(u16_at(packet, fixed + 8)?);
    let bytes = packet.get(data..end)?;
    let address = (kind == wanted.number() && class == CLASS_IN).then(|| match wanted {
        RecordType::A => <[u8; 4]>::try_from(bytes).ok().map(|b| IpAddr::V4(Ipv4Addr::from(b))),
        RecordType::Aaaa => <[u8; 16]>::try_from(bytes).ok().map(|b| IpAddr::V6(Ipv6Addr::from(b))),
    });
    Some((end, address.flatten()))
}

/// Steps over a name without following its pointers, so that a loop of them has nothing to catch.
fn skip_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *packet.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

fn u16_at(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]))
}
