//! Packets of a client as bytes.

/// Name and password of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::mqtt) struct Login {
    pub(in crate::mqtt) client_id: String,
    pub(in crate::mqtt) username: String,
    pub(in crate::mqtt) password: Vec<u8>,
}

/// A clean session.
pub(in crate::mqtt) fn connect(login: &Login, keep_alive: u16) -> Vec<u8> {
    const CLEAN: u8 = 0x02;
    let (mut flags, mut payload) = (CLEAN, Vec::new());
    text(&mut payload, login.client_id.as_bytes());
    if !login.username.is_empty() {
        flags |= 0x80;
        text(&mut payload, login.username.as_bytes());
        if !login.password.is_empty() {
            flags |= 0x40;
            text(&mut payload, &login.password);
        }
    }
    let mut body = Vec::new();
    text(&mut body, b"MQTT");
    body.extend([4, flags]);
    body.extend(keep_alive.to_be_bytes());
    body.extend(payload);
    packet(0x10, &body)
}

/// Subscribes with QoS 1.
pub(in crate::mqtt) fn subscribe(id: u16, filters: &[impl AsRef<str>]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    for filter in filters {
        text(&mut body, filter.as_ref().as_bytes());
        body.push(1);
    }
    packet(0x82, &body)
}

pub(in crate::mqtt) fn unsubscribe(id: u16, filters: &[String]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    for filter in filters {
        text(&mut body, filter.as_bytes());
    }
    packet(0xa2, &body)
}

/// Adds a PUBLISH; QoS 1 with an id.
pub(in crate::mqtt) fn message(to: &mut Vec<u8>, topic: &str, payload: &[u8], id: Option<u16>, retained: bool) {
    to.push(0x30 | if id.is_some() { 2 } else { 0 } | u8::from(retained));
    length(to, 2 + topic.len() + id.map_or(0, |_| 2) + payload.len());
    text(to, topic.as_bytes());
    to.extend(id.into_iter().flat_map(u16::to_be_bytes));
    to.extend_from_slice(payload);
}

pub(in crate::mqtt) const fn puback(id: u16) -> [u8; 4] {
    let [high, low] = id.to_be_bytes();
    [0x40, 2, high, low]
}

pub(in crate::mqtt) const PINGREQ: [u8; 2] = [0xc0, 0];
pub(in crate::mqtt) const DISCONNECT: [u8; 2] = [0xe0, 0];

/// Adds a text. Its length has two bytes; a longer text is cut.
pub(super) fn text(to: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    to.extend(length.to_be_bytes());
    to.extend(&bytes[..usize::from(length)]);
}

pub(super) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 5);
    packet.push(first);
    length(&mut packet, body.len());
    packet.extend(body);
    packet
}

/// 2.2.3
pub(in crate::mqtt) fn length(to: &mut Vec<u8>, mut length: usize) {
    loop {
        let [low, ..] = (length & 0x7f).to_le_bytes();
        length >>= 7;
        to.push(if length > 0 { low | 0x80 } else { low });
        if length == 0 {
            return;
        }
    }
}
