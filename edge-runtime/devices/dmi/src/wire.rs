//! Messages out of parts that are encoded already, so that a long list is never there twice; and how many parts a message has,
//! before it is read: an empty part takes two bytes, and much more once it is read.

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

/// Adds an encoded message as the field with this number.
pub fn append(to: &mut Vec<u8>, number: u32, message: &[u8]) {
    encode_key(number, WireType::LengthDelimited, to);
    encode_varint(message.len() as u64, to);
    to.extend_from_slice(message);
}

/// How many bytes [`append`] adds, for a field number below 16.
#[must_use]
pub const fn appended(message: usize) -> usize {
    1 + prost::encoding::encoded_len_varint(message as u64) + message
}

/// Number of fields with the last number of this path, in the messages at the numbers before it. `None` if the bytes
/// are not a message.
#[must_use]
pub fn count(mut message: &[u8], path: &[u32]) -> Option<usize> {
    let Some((first, rest)) = path.split_first() else { return Some(0) };
    let mut found = 0;
    while message.has_remaining() {
        let (number, wire) = decode_key(&mut message).ok()?;
        if number != *first || wire != WireType::LengthDelimited {
            skip_field(wire, number, &mut message, DecodeContext::default()).ok()?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
        let (inner, after) = message.split_at_checked(length)?;
        found += if rest.is_empty() { 1 } else { count(inner, rest)? };
        message = after;
    }
    Some(found)
}
