//! Parses packets of clients strictly (MQTT 3.1.1, section 3): a violation of the standard ends the connection
//! [MQTT-4.8.0-1]. Borrows from the received bytes.

use edge_protocol::topic::is_topic_of_any_length;

use super::super::packet::Broken;
use super::connect::{self, Connect};
use super::filter::Filter;

pub(super) const CONNECT: u8 = 1;
pub(super) const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const PUBREL: u8 = 6;
const SUBSCRIBE: u8 = 8;
const UNSUBSCRIBE: u8 = 10;
const PINGREQ: u8 = 12;
const DISCONNECT: u8 = 14;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    Connect(Connect<'a>),
    /// CONNECT of another version of MQTT.
    OtherVersion,
    Publish(Publish<'a>),
    PubAck(u16),
    PubRel(u16),
    Subscribe(u16, Filters<'a>),
    Unsubscribe(u16, Filters<'a>),
    PingReq,
    Disconnect,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Publish<'a> {
    pub(super) topic: &'a str,
    /// `None` if it is too long.
    pub(super) payload: Option<&'a [u8]>,
    pub(super) retain: bool,
    pub(super) qos: Qos,
}

/// Quality of service, with the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Qos {
    Zero,
    One(u16),
    Two(u16),
}

pub(super) fn broken<T>(why: &str) -> Result<T, Broken> {
    Err(Broken(why.to_owned()))
}

/// Type and flags, before anything else is waited for: [MQTT-2.2.2-1], [MQTT-2.2.2-2].
pub(super) fn check_head(first: u8) -> Result<(), Broken> {
    match (first >> 4, first & 0x0f) {
        // [MQTT-3.3.1-4], [MQTT-3.3.1-2]
        (PUBLISH, flags) if flags & 6 == 6 || flags & 14 == 8 => {
            broken("a message with QoS 3, or sent again with QoS 0")
        }
        (PUBLISH, _) | (PUBREL | SUBSCRIBE | UNSUBSCRIBE, 2) => Ok(()),
        (CONNECT | PUBACK | PINGREQ | DISCONNECT, 0) => Ok(()),
        _ => broken("no packet of a client"),
    }
}

pub(super) fn parse(first: u8, body: &[u8]) -> Result<Packet<'_>, Broken> {
    let mut fields = Fields(body);
    let packet = match first >> 4 {
        CONNECT => return connect::parse(fields),
        PUBLISH => return publish(first, fields, true),
        PUBACK => Packet::PubAck(fields.number()?),
        PUBREL => Packet::PubRel(fields.number()?),
        SUBSCRIBE => return Ok(Packet::Subscribe(fields.id()?, Filters::checked(fields.0, true)?)),
        UNSUBSCRIBE => return Ok(Packet::Unsubscribe(fields.id()?, Filters::checked(fields.0, false)?)),
        PINGREQ => Packet::PingReq,
        _ => Packet::Disconnect,
    };
    fields.end()?;
    Ok(packet)
}

/// `head`: topic and id.
pub(super) fn publish_without_payload(first: u8, head: &[u8]) -> Result<Packet<'_>, Broken> {
    publish(first, Fields(head), false)
}

fn publish(first: u8, mut fields: Fields<'_>, whole: bool) -> Result<Packet<'_>, Broken> {
    let topic = fields.text()?;
    if !is_topic_of_any_length(topic) {
        return broken("a message to no topic [MQTT-3.3.2-2], [MQTT-4.7.3-1]");
    }
    let qos = match (first >> 1) & 3 {
        0 => Qos::Zero,
        1 => Qos::One(fields.id()?),
        _ => Qos::Two(fields.id()?),
    };
    let payload = whole.then_some(fields.0);
    Ok(Packet::Publish(Publish { topic, payload, retain: first & 1 == 1, qos }))
}

/// The body of a packet that is not read yet.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn short<T>(field: Option<T>) -> Result<T, Broken> {
        field.ok_or_else(|| Broken("a packet is shorter than its fields".to_owned()))
    }

    pub(super) fn byte(&mut self) -> Result<u8, Broken> {
        let (byte, rest) = Self::short(self.0.split_first())?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(super) fn number(&mut self) -> Result<u16, Broken> {
        let (number, rest) = Self::short(self.0.split_first_chunk())?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*number))
    }

    /// [MQTT-2.3.1-1]
    fn id(&mut self) -> Result<u16, Broken> {
        match self.number()? {
            0 => broken("a packet has 0 for an id [MQTT-2.3.1-1]"),
            id => Ok(id),
        }
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8], Broken> {
        let length = self.number()?;
        let (binary, rest) = Self::short(self.0.split_at_checked(usize::from(length)))?;
        self.0 = rest;
        Ok(binary)
    }

    /// [MQTT-1.5.3-1], [MQTT-1.5.3-2]
    pub(super) fn text(&mut self) -> Result<&'a str, Broken> {
        match std::str::from_utf8(self.binary()?) {
            Ok(text) if !text.contains('\0') => Ok(text),
            _ => broken("a text is no UTF-8 [MQTT-1.5.3-1], [MQTT-1.5.3-2]"),
        }
    }

    pub(super) fn end(&self) -> Result<(), Broken> {
        if self.0.is_empty() { Ok(()) } else { broken("a packet is longer than its fields") }
    }
}

/// The filters of SUBSCRIBE or UNSUBSCRIBE: one at least [MQTT-3.8.3-3], [MQTT-3.10.3-2], each as the standard has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filters<'a> {
    bytes: &'a [u8],
    with_qos: bool,
}

impl<'a> Filters<'a> {
    fn checked(bytes: &'a [u8], with_qos: bool) -> Result<Self, Broken> {
        let mut fields = Fields(bytes);
        while !fields.0.is_empty() || fields.0.len() == bytes.len() {
            Self::next(&mut fields, with_qos)?;
        }
        Ok(Self { bytes, with_qos })
    }

    fn next(fields: &mut Fields<'a>, with_qos: bool) -> Result<(Filter, u8), Broken> {
        let Some(filter) = Filter::new(fields.text()?) else { return broken("a filter is none (section 4.7)") };
        match if with_qos { fields.byte()? } else { 0 } {
            qos @ 0..=2 => Ok((filter, qos)),
            _ => broken("a subscription with more than QoS 2 [MQTT-3.8.3-4]"),
        }
    }

    /// Filters with the requested QoS.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Filter, u8)> {
        let mut fields = Fields(self.bytes);
        let with_qos = self.with_qos;
        std::iter::from_fn(move || (!fields.0.is_empty()).then(|| Self::next(&mut fields, with_qos).ok()).flatten())
    }
}
