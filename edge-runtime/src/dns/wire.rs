//! Questions and answers as bytes (RFC 1035, 3596, 2782, 6891). Pure, and fed by strangers.
//!
//! Little of DNS is needed: a question is read and an answer is written; what others answer passes unread. So this is no
//! library, which would read everything and cost the binary several times as much.

use std::net::IpAddr;

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
/// Without EDNS a datagram has no more (RFC 1035, 2.3.4); with it, so much passes everywhere (DNS flag day 2020).
const PLAIN: usize = 512;
const WITH_EDNS: usize = 1232;
/// Of a message over TCP.
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

/// A question as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub id: u16,
    pub recursion: bool,
    /// In lower case, without the final dot. None for one that no host has: with a dot or a zero in a label.
    pub name: Option<String>,
    pub kind: u16,
    /// Name, type and class as they were written.
    pub raw: Vec<u8>,
    /// The asker knows EDNS: how much it takes in a datagram.
    edns: Option<u16>,
}

impl Question {
    /// The longest answer that the asker takes, in bytes.
    pub fn room(&self, tcp: bool) -> usize {
        match (tcp, self.edns) {
            (true, _) => LONGEST,
            (false, None) => PLAIN,
            (false, Some(size)) => usize::from(size).clamp(PLAIN, WITH_EDNS),
        }
    }
}

/// What an answer says of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    Address(IpAddr),
    Name(String),
    Pointer(String),
    Text(String),
    Service {
        weight: u16,
        port: u16,
        target: String,
    },
    /// Of the zone: who answers for it, and since when.
    Server(String),
    Authority,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub name: String,
    pub data: Data,
}

/// The shortest record in an answer, in bytes: of an address, by a pointer to the name of the question.
pub const SHORTEST: usize = 16;

/// How long what is said here may be believed.
pub const TTL: u32 = 5;

impl Data {
    pub fn kind(&self) -> u16 {
        match self {
            Self::Address(IpAddr::V4(_)) => A,
            Self::Address(IpAddr::V6(_)) => AAAA,
            Self::Name(_) => CNAME,
            Self::Pointer(_) => PTR,
            Self::Text(_) => TXT,
            Self::Service { .. } => SRV,
            Self::Server(_) => NS,
            Self::Authority => SOA,
        }
    }

    fn bytes(&self, zone: &str) -> Vec<u8> {
        match self {
            Self::Address(IpAddr::V4(ip)) => ip.octets().to_vec(),
            Self::Address(IpAddr::V6(ip)) => ip.octets().to_vec(),
            Self::Name(name) | Self::Pointer(name) | Self::Server(name) => written(name),
            Self::Text(text) => {
                let text = &text.as_bytes()[..text.len().min(255)];
                [&[u8::try_from(text.len()).unwrap_or(u8::MAX)], text].concat()
            }
            Self::Service { weight, port, target } => {
                [&[0, 0][..], &weight.to_be_bytes(), &port.to_be_bytes(), &written(target)].concat()
            }
            Self::Authority => {
                let mut bytes = [written(&format!("ns.dns.{zone}")), written(&format!("hostmaster.{zone}"))].concat();
                // Serial, refresh, retry, expire; and for how long it may be believed that there is no such name.
                for number in [1, 7200, 1800, 86_400, TTL] {
                    bytes.extend(number.to_be_bytes());
                }
                bytes
            }
        }
    }
}

/// The question of a message; how to refuse it otherwise, or none for what deserves no answer.
///
/// # Errors
/// The code and the id to refuse it with.
pub fn question(packet: &[u8]) -> Result<Question, Option<(u16, Code)>> {
    let id = u16_at(packet, 0).ok_or(None)?;
    let flags = u16_at(packet, 2).ok_or(None)?;
    if flags & 0x8000 != 0 {
        // An answer: to answer it would be a way to have two servers talk to each other for ever.
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
        // Transfers of zones, and classes of long ago.
        return Err(Some((id, Code::Refused)));
    }
    let edns = (u16_at(packet, 10) != Some(0)).then(|| edns(packet, after + 4)).flatten();
    Ok(Question { id, recursion: flags & 0x0100 != 0, name, kind, raw, edns })
}

/// What the asker takes, by a record of type OPT that comes first of the additional ones.
fn edns(packet: &[u8], at: usize) -> Option<u16> {
    let root = packet.get(at) == Some(&0);
    (root && u16_at(packet, at + 1) == Some(OPT)).then(|| u16_at(packet, at + 3)).flatten()
}

/// A name without pointers, as questions have them, and where it ends.
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

/// Whether an answer of another server is to this question, whatever its id.
pub fn answers(packet: &[u8], question: &Question) -> bool {
    let echo = packet.get(HEADER..HEADER + question.raw.len());
    packet.get(2).is_some_and(|flags| flags & 0x80 != 0)
        && u16_at(packet, 4) == Some(1)
        && echo.is_some_and(|echo| echo.eq_ignore_ascii_case(&question.raw))
}

/// An answer to `question` about `zone`, at most so long as a datagram may be, or as TCP allows. What does not fit is left
/// out, and the asker told to ask by TCP.
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
    // An answer, by who knows; recursion is wanted and can be had.
    let flags = 0x8480 | u16::from(question.recursion) << 8 | u16::from(cut) << 9 | code as u16;
    let mut header = [flags, 1, counts[0], counts[1], counts[2]].map(u16::to_be_bytes).concat();
    out[2..HEADER].swap_with_slice(&mut header);
    out
}

/// No answer to a question that came in a datagram, but the advice to ask by TCP (RFC 2181, 9).
pub fn ask_by_tcp(question: &Question) -> Vec<u8> {
    let flags = 0x8280 | u16::from(question.recursion) << 8;
    let header = [question.id, flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&header[..], &question.raw].concat()
}

/// A refusal of something that could not be read.
pub fn refusal(id: u16, code: Code) -> Vec<u8> {
    [id, 0x8080 | code as u16, 0, 0, 0, 0].map(u16::to_be_bytes).concat()
}

fn record_bytes(record: &Record, asked: &str, zone: &str) -> Vec<u8> {
    // Most names are the one that was asked for: it stands after the header.
    let mut out = if record.name == asked { vec![0xc0, 0x0c] } else { written(&record.name) };
    let data = record.data.bytes(zone);
    out.extend(record.data.kind().to_be_bytes());
    out.extend(IN.to_be_bytes());
    out.extend(TTL.to_be_bytes());
    out.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
    out.extend(data);
    out
}

/// Labels that are too long are cut: no name of ours has one.
fn written(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        out.push(u8::try_from(label.len()).unwrap_or_default());
        out.extend(label);
    }
    out.push(0);
    out
}

pub fn u16_at(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
        out.extend(written(name));
        out.extend(kind.to_be_bytes());
        out.extend(IN.to_be_bytes());
        if let Some(size) = edns {
            out.extend([0, 0, 41]);
            out.extend(size.to_be_bytes());
            out.extend([0; 6]);
        }
        out
    }

    #[test]
    fn a_question_is_read_and_its_answer_names_it() {
        let asked = question(&packet("Web.Shop.svc", A, None)).unwrap();
        assert_eq!((asked.name.as_deref(), asked.kind, asked.recursion), (Some("web.shop.svc"), A, true));
        let record = Record { name: "web.shop.svc".into(), data: Data::Address("10.0.0.1".parse().unwrap()) };
        let told = answer(&asked, Code::NoError, &[record], &[], "cluster.local", false);
        assert_eq!(told[..4], [0x12, 0x34, 0x85, 0x80]);
        assert_eq!(told[HEADER..HEADER + asked.raw.len()], asked.raw[..], "as it was written");
        assert_eq!(told[HEADER + asked.raw.len()..], [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 0, 0, 1]);
        assert!(answers(&told, &asked));
        let other = question(&packet("other", A, None)).unwrap();
        assert!(!answers(&told, &other));
    }

    #[test]
    fn what_does_not_fit_is_asked_for_by_tcp() {
        let record = |number: u8| Record { name: "a.b".into(), data: Data::Address([10, 0, 0, number].into()) };
        let records: Vec<Record> = (0..200).map(record).collect();
        let length = |edns, tcp| {
            let asked = question(&packet("a.b", A, edns)).unwrap();
            let told = answer(&asked, Code::NoError, &records, &[], "z", tcp);
            (told.len() <= PLAIN, told.len() <= WITH_EDNS, told[2] & 2 != 0)
        };
        assert_eq!(length(None, false), (true, true, true));
        assert_eq!(length(Some(4096), false), (false, true, true));
        assert_eq!(length(None, true), (false, false, false));
    }

    #[test]
    fn nothing_that_is_no_question_is_answered_as_one() {
        let mut reply = packet("a.b", A, None);
        reply[2] |= 0x80;
        assert_eq!(question(&reply), Err(None));
        assert_eq!(question(&[1, 2, 3]), Err(None));
        assert_eq!(question(&packet("a.b", 252, None)), Err(Some((0x1234, Code::Refused))));
        let mut update = packet("a.b", A, None);
        update[2] = 0x28;
        assert_eq!(question(&update), Err(Some((0x1234, Code::NotImplemented))));
        // A pointer, a label that is too long, and a name that does not end.
        for bytes in [&[0xc0, 0x0c][..], &[64, 1, 1], &[3, b'a']] {
            let packet = [&packet("", A, None)[..HEADER], bytes].concat();
            assert_eq!(question(&packet), Err(Some((0x1234, Code::FormatError))));
        }
        let mut odd = packet("a.b", A, None);
        odd[HEADER + 1] = b'.';
        assert_eq!(question(&odd).unwrap().name, None);
    }
}
