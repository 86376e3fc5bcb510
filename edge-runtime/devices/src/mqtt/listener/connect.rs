//! CONNECT (MQTT 3.1.1, 3.1): the client's name and login, and its will.

use edge_protocol::topic::is_topic_of_any_length;

use super::super::packet::Broken;
use super::packet::{Fields, Packet, broken};

const NAME: &[u8] = b"MQTT";
/// MQTT 3.1 calls itself so.
const OLD_NAME: &[u8] = b"MQIsdp";
const LEVEL: u8 = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Connect<'a> {
    pub(super) client_id: &'a str,
    pub(super) clean: bool,
    /// Seconds; 0 for none.
    pub(super) keep_alive: u16,
    pub(super) will: Option<Will<'a>>,
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a [u8]>,
}

/// Message to publish when the client is cut off.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Will<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: &'a [u8],
    /// QoS 1, of which 2 is made, too.
    pub(super) sure: bool,
    pub(super) retain: bool,
}

pub(super) fn parse(mut fields: Fields<'_>) -> Result<Packet<'_>, Broken> {
    let name = fields.binary()?;
    match (name, fields.byte()?) {
        (NAME, LEVEL) => {}
        // [MQTT-3.1.2-2]
        (NAME | OLD_NAME, _) => return Ok(Packet::OtherVersion),
        _ => return broken("another protocol [MQTT-3.1.2-1]"),
    }
    let flags = fields.byte()?;
    let is_set = |bit: u8| flags & bit != 0;
    let (named, secret, retain, wills, clean) = (is_set(0x80), is_set(0x40), is_set(0x20), is_set(0x04), is_set(0x02));
    let qos = (flags >> 3) & 3;
    if is_set(0x01) {
        return broken("a flag of the future [MQTT-3.1.2-3]");
    }
    if qos == 3 || (!wills && (qos > 0 || retain)) {
        return broken("a will of no kind [MQTT-3.1.2-13] to [MQTT-3.1.2-15]");
    }
    if secret && !named {
        return broken("a password of nobody [MQTT-3.1.2-22]");
    }
    let keep_alive = fields.number()?;
    let client_id = fields.text()?;
    let will = if wills {
        let (topic, payload) = (fields.text()?, fields.binary()?);
        if !is_topic_of_any_length(topic) {
            return broken("a will for no topic");
        }
        Some(Will { topic, payload, sure: qos > 0, retain })
    } else {
        None
    };
    let user = if named { Some(fields.text()?) } else { None };
    let password = if secret { Some(fields.binary()?) } else { None };
    fields.end()?;
    Ok(Packet::Connect(Connect { client_id, clean, keep_alive, will, user, password }))
}
