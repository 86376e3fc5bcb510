//! Packets to clients as bytes (MQTT 3.1.1, section 3).

use super::super::packet::length;

/// CONNACK with return code 0. There never is a session of before [MQTT-3.2.2-3].
pub(super) const WELCOME: [u8; 4] = connack(0);
pub(super) const PINGRESP: [u8; 2] = [0xd0, 0];

/// A filter that is refused.
pub(super) const REFUSED: u8 = 0x80;

/// 3.2
pub(super) const fn connack(code: u8) -> [u8; 4] {
    [0x20, 2, 0, code]
}

/// Packets of nothing but an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ack {
    Puback = 0x40,
    Pubrec = 0x50,
    Pubcomp = 0x70,
    Unsuback = 0xb0,
}

pub(super) const fn ack(kind: Ack, id: u16) -> [u8; 4] {
    let [high, low] = id.to_be_bytes();
    [kind as u8, 2, high, low]
}

/// 3.9
pub(super) fn suback(id: u16, codes: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x90];
    length(&mut packet, codes.len() + 2);
    packet.extend(id.to_be_bytes());
    packet.extend(codes);
    packet
}
