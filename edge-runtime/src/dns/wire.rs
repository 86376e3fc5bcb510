//! Queries and answers as bytes (RFC 1035, 3596, 2782, 6891). Pure. All input is untrusted.
//!
//! It reads queries and writes answers; answers of other servers are forwarded unparsed. A DNS library parses
//! everything and is several times as large.

mod record;

use record::record_bytes;

pub use record::{Data, Record, SHORTEST};

pub const A: u16 = 1;
pub const NS: u16 = 2;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const PTR: u16 = 12;
pub const TXT: u16 = 16;
pub const AAAA: u16 = 28;
pub const SRV: u16 = 33;
const OPT: u16 = 41;
const ANY_FROM: u16 = 251;
const ANY: u16 = 255;
const IN: u16 = 1;

const HEADER: usize = 12;
/// Maximum size of a datagram without EDNS (RFC 1035, 2.3.4) and with it (DNS flag day 2020), in bytes.
const PLAIN: usize = 512;
const WITH_EDNS: usize = 1232;
/// Maximum length of a message over TCP, in bytes.
pub const LONGEST: usize = 65_535;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    NoError = 0,
    FormatError = 1,
    ServerFailure = 2,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
}

/// A parsed query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub id: u16,
    pub recursion: bool,
    /// In lower case, without the final dot. `None` for a name with a dot or an unprintable byte in a label.
    pub name: Option<String>,
    pub kind: u16,
    /// Name, type and class as received.
    pub raw: Vec<u8>,
    /// Maximum datagram that the client accepts, if it uses EDNS.
    edns: Option<u16>,
}

impl Question {
    /// Maximum length of the answer, in bytes.
    pub fn room(&self, tcp: bool) -> usize {
        match (tcp, self.edns) {
            (true, _) => LONGEST,
            (false, None) => PLAIN,
            (false, Some(size)) => usize::from(size).clamp(PLAIN, WITH_EDNS),
        }
    }
}

/// Parses a query.
///
/// # Errors
/// Id and code of the refusal; `None` for a message that must not be answered.
pub fn question(packet: &[u8]) -> Result<Question, Option<(u16, Code)>> {
    let id = u16_at(packet, 0).ok_or(None)?;
    let flags = u16_at(packet, 2).ok_or(None)?;
    if flags & 0x8000 != 0 {
        // Answering an answer could make two servers send messages to each other forever.
        return Err(None);
    }
    if flags & 0x7800 != 0 {
        return Err(Some((id, Code::NotImplemented)));
    }
    let wrong = || Some((id, Code::FormatError));
    if u16_at(packet, 4) != Some(1) {
        return Err(wrong());
    }
    let (name, after) = name_at(packet, HEADER).ok_or_else(wrong)?;
    let kind = u16_at(packet, after).ok_or_else(wrong)?;
    let class = u16_at(packet, after + 2).ok_or_else(wrong)?;
    let raw = packet.get(HEADER..after + 4).ok_or_else(wrong)?.to_vec();
    if class != IN || ((ANY_FROM..ANY).contains(&kind)) {
        // Zone transfers, and classes other than IN.
        return Err(Some((id, Code::Refused)));
    }
    let edns = (u16_at(packet, 10) != Some(0)).then(|| edns(packet, after + 4)).flatten();
    Ok(Question { id, recursion: flags & 0x0100 != 0, name, kind, raw, edns })
}

/// Datagram size in an OPT record, if that is the first additional record.
fn edns(packet: &[u8], at: usize) -> Option<u16> {
    let root = packet.get(at) == Some(&0);
    (root && u16_at(packet, at + 1) == Some(OPT)).then(|| u16_at(packet, at + 3)).flatten()
}

/// Parses a name without compression, as queries have it, and returns where it ends.
fn name_at(packet: &[u8], mut at: usize) -> Option<(Option<String>, usize)> {
    let (mut name, mut plain) = (String::new(), true);
    let begin = at;
    loop {
        let length = usize::from(*packet.get(at)?);
        if length == 0 {
            return Some((plain.then_some(name), at + 1));
        }
        let label = packet.get(at + 1..at + 1 + length).filter(|_| length < 64)?;
        if !name.is_empty() {
            name.push('.');
        }
        for byte in label {
            plain &= byte.is_ascii_graphic() && *byte != b'.';
            name.push(char::from(byte.to_ascii_lowercase()));
        }
        at += 1 + length;
        if at - begin > 254 {
            return None;
        }
    }
}

/// Whether the message answers this query; ignores the id.
pub fn answers(packet: &[u8], question: &Question) -> bool {
    let echo = packet.get(HEADER..HEADER + question.raw.len());
    packet.get(2).is_some_and(|flags| flags & 0x80 != 0)
        && u16_at(packet, 4) == Some(1)
        && echo.is_some_and(|echo| echo.eq_ignore_ascii_case(&question.raw))
}

/// Builds an answer to `question` about `zone`, within the maximum length of a datagram or of TCP. Omits records that
/// do not fit and then sets the truncation flag, so that the client retries over TCP.
pub fn answer(question: &Question, code: Code, records: &[Record], more: &[Record], zone: &str, tcp: bool) -> Vec<u8> {
    let limit = question.room(tcp);
    let opt: &[u8] = match question.edns {
        Some(_) => &[0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0],
        None => &[],
    };
    let asked = question.name.as_deref().unwrap_or_default();
    let mut out = Vec::with_capacity(PLAIN);
    out.extend(question.id.to_be_bytes());
    out.extend([0; HEADER - 2]);
    out.extend(&question.raw);
    let authority = records.is_empty() && matches!(code, Code::NoError | Code::NoSuchName);
    let soa = [Record { name: zone.to_owned(), data: Data::Authority }];
    let authority = if authority { &soa[..] } else { &[] };
    let (mut counts, mut cut) = ([0_u16; 3], false);
    for (section, all) in [records, authority, more].into_iter().enumerate() {
        for record in all {
            let bytes = record_bytes(record, asked, zone);
            if out.len() + bytes.len() + opt.len() > limit {
                cut |= section < 2;
                break;
            }
            out.extend(bytes);
            counts[section] += 1;
        }
    }
    out.extend(opt);
    counts[2] += u16::from(!opt.is_empty());
    // QR, AA and RA; RD as in the query.
    let flags = 0x8480 | u16::from(question.recursion) << 8 | u16::from(cut) << 9 | code as u16;
    let mut header = [flags, 1, counts[0], counts[1], counts[2]].map(u16::to_be_bytes).concat();
    out[2..HEADER].swap_with_slice(&mut header);
    out
}

/// Builds an empty truncated answer, so that the client retries over TCP (RFC 2181, 9).
pub fn ask_by_tcp(question: &Question) -> Vec<u8> {
    let flags = 0x8280 | u16::from(question.recursion) << 8;
    let header = [question.id, flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&header[..], &question.raw].concat()
}

/// Builds a refusal without a question.
pub fn refusal(id: u16, code: Code) -> Vec<u8> {
    [id, 0x8080 | code as u16, 0, 0, 0, 0].map(u16::to_be_bytes).concat()
}

pub fn u16_at(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]))
}

#[cfg(test)]
mod tests;
