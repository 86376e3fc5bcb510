//! Writes fields in the protobuf wire format. Knows no messages.

/// One message in a field.
pub(super) fn nested(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(out, number, &inner);
}

/// Text, bytes or a message.
pub(super) fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    key(out, number, 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// A varint.
pub(super) fn integer(out: &mut Vec<u8>, number: u32, value: u64) {
    key(out, number, 0);
    varint(out, value);
}

/// The number and the type of a field, which its value follows.
pub(super) fn key(out: &mut Vec<u8>, number: u32, wire_type: u64) {
    varint(out, u64::from(number) << 3 | wire_type);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}
