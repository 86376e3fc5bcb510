//! Records of an answer as bytes.

use std::net::IpAddr;

use super::{A, AAAA, CNAME, IN, NS, PTR, SOA, SRV, TXT};

/// Data of a record.
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
    /// Name server of the zone (NS).
    Server(String),
    /// Start of authority of the zone (SOA).
    Authority,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub name: String,
    pub data: Data,
}

/// Length of the shortest record in an answer, in bytes: an IPv4 address with a compressed name.
pub const SHORTEST: usize = 16;

/// TTL of records of the cluster, in seconds.
const TTL: u32 = 5;

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
                // Serial, refresh, retry, expire, and the TTL of negative answers.
                for number in [1, 7200, 1800, 86_400, TTL] {
                    bytes.extend(number.to_be_bytes());
                }
                bytes
            }
        }
    }
}

pub(super) fn record_bytes(record: &Record, asked: &str, zone: &str) -> Vec<u8> {
    // Compresses the name of the question to a pointer behind the header.
    let mut out = if record.name == asked { vec![0xc0, 0x0c] } else { written(&record.name) };
    let data = record.data.bytes(zone);
    out.extend(record.data.kind().to_be_bytes());
    out.extend(IN.to_be_bytes());
    out.extend(TTL.to_be_bytes());
    out.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
    out.extend(data);
    out
}

/// Encodes a name. Truncates labels beyond 63 bytes; names of the cluster have none.
pub(super) fn written(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        out.push(u8::try_from(label.len()).unwrap_or_default());
        out.extend(label);
    }
    out.push(0);
    out
}
