//! D-Bus messages as bytes: method calls to systemd, its replies, errors and signals. Pure; little-endian, as each
//! message declares.
//!
//! Only the types that systemd's unit calls use (D-Bus specification, "Message Protocol").

use super::{BusError, Property, Value};

/// Longer messages are not for us: the specification allows 128 MiB.
const MAX_BYTES: usize = 1 << 20;
/// The fixed part of a header, with the length of its fields.
const FIXED: usize = 16;

const CALL: u8 = 1;
pub(super) const REPLY: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const SIGNAL: u8 = 4;

const OBJECT: &str = "/org/freedesktop/systemd1";
const INTERFACE: &str = "org.freedesktop.systemd1.Manager";

/// Values one after the other, each aligned as its type wants it.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_le_bytes());
    }

    /// A length. What is written here is far below 4 GiB.
    fn length(&mut self, value: usize) {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX));
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.u32(value.into());
    }

    pub(super) fn text(&mut self, value: &str) {
        self.length(value.len());
        self.0.extend(value.as_bytes());
        self.0.push(0);
    }

    /// `g`.
    fn signature(&mut self, value: &str) {
        self.0.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.0.extend(value.as_bytes());
        self.0.push(0);
    }

    /// Writes an array of structures. Its length does not include itself or the padding before the first one.
    fn array(&mut self, fill: impl FnOnce(&mut Self)) {
        self.length(0);
        let length_at = self.0.len() - 4;
        self.align(8);
        let begin = self.0.len();
        fill(self);
        let length = u32::try_from(self.0.len() - begin).unwrap_or(u32::MAX);
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// `a(sv)`.
    pub(super) fn properties(&mut self, properties: &[Property]) {
        self.array(|all| {
            for Property { name, value } in properties {
                all.align(8);
                all.text(name);
                match value {
                    Value::Flag(flag) => {
                        all.signature("b");
                        all.flag(*flag);
                    }
                    Value::Number(number) => {
                        all.signature("t");
                        all.align(8);
                        all.0.extend(number.to_le_bytes());
                    }
                    Value::Text(text) => {
                        all.signature("s");
                        all.text(text);
                    }
                    Value::Bytes(bytes) => {
                        all.signature("ay");
                        all.length(bytes.len());
                        all.0.extend(bytes);
                    }
                }
            }
        });
    }

    /// `a(sa(sv))` without any.
    pub(super) fn no_units(&mut self) {
        self.array(|_| {});
    }
}

/// A call of systemd's manager object; `body` has the types of `signature`.
pub(super) fn call(serial: u32, member: &str, signature: &str, body: &Writer) -> Vec<u8> {
    let mut message = Writer(vec![b'l', CALL, 0, 1]);
    message.length(body.0.len());
    message.u32(serial);
    message.array(|fields| {
        for (code, kind, value) in [(1, "o", OBJECT), (2, "s", INTERFACE), (3, "s", member), (8, "g", signature)] {
            fields.align(8);
            fields.0.push(code);
            fields.signature(kind);
            if kind == "g" { fields.signature(value) } else { fields.text(value) }
        }
    });
    message.align(8);
    message.0.extend(&body.0);
    message.0
}

/// A message of systemd's, as far as it matters here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) reply_to: u32,
    /// Name of a signal.
    pub(super) member: String,
    pub(super) error: String,
    pub(super) signature: String,
    pub(super) body: Vec<u8>,
}

/// Removes the first complete message from `inbox`; `None` until it is complete.
pub(super) fn take(inbox: &mut Vec<u8>) -> Result<Option<Message>, BusError> {
    let Some(fixed) = inbox.first_chunk::<FIXED>() else { return Ok(None) };
    if fixed[0] != b'l' || fixed[3] != 1 {
        return Err(BusError::Garbage("it is no little-endian D-Bus message of version 1"));
    }
    let kind = fixed[1];
    let number = |at: usize| Reader { bytes: &fixed[..], at }.u32();
    let (body, fields) = (number(4)? as usize, number(12)? as usize);
    if body > MAX_BYTES || fields > MAX_BYTES {
        return Err(BusError::Garbage("it is too long"));
    }
    let begin = (FIXED + fields).next_multiple_of(8);
    if inbox.len() < begin + body {
        return Ok(None);
    }
    let bytes: Vec<u8> = inbox.drain(..begin + body).collect();
    let mut message = Message { kind, body: bytes[begin..].to_vec(), ..Message::default() };
    let mut reader = Reader { bytes: &bytes[..FIXED + fields], at: FIXED };
    while reader.at < reader.bytes.len() {
        reader.align(8);
        let code = reader.u8()?;
        let kind = reader.signature()?;
        match (code, kind) {
            (5, "u") => message.reply_to = reader.u32()?,
            (3, "s") => reader.text()?.clone_into(&mut message.member),
            (4, "s") => reader.text()?.clone_into(&mut message.error),
            (8, "g") => reader.signature()?.clone_into(&mut message.signature),
            (_, "s" | "o") => drop(reader.text()?),
            (_, "u") => drop(reader.u32()?),
            (_, "g") => drop(reader.signature()?),
            _ => return Err(BusError::Garbage("a field of its header has an unknown type")),
        }
    }
    Ok(Some(message))
}

/// Reads values in their order.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn of(message: &'a Message) -> Self {
        Self { bytes: &message.body, at: 0 }
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], BusError> {
        let end = self.at.checked_add(count);
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or(BusError::Garbage("it ends too soon"))?;
        self.at += count;
        Ok(found)
    }

    fn u8(&mut self) -> Result<u8, BusError> {
        Ok(self.bytes(1)?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, BusError> {
        self.align(4);
        let bytes = self.bytes(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// `s` or `o`.
    pub(super) fn text(&mut self) -> Result<&'a str, BusError> {
        let length = self.u32()? as usize;
        self.ended_text(length)
    }

    fn signature(&mut self) -> Result<&'a str, BusError> {
        let length = self.u8()?.into();
        self.ended_text(length)
    }

    fn ended_text(&mut self, length: usize) -> Result<&'a str, BusError> {
        let text = self.bytes(length)?;
        if self.u8()? != 0 {
            return Err(BusError::Garbage("a text of it has no end"));
        }
        std::str::from_utf8(text).map_err(|_| BusError::Garbage("a text of it is not UTF-8"))
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
pub(super) mod tests;
