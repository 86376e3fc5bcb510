//! The protobuf wire format: a body as a sequence of numbered fields. Knows no messages.

use super::DecodeError;

/// One field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) payload: Payload<'a>,
}

/// Value of a field by its wire type.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload<'a> {
    /// Varints and fixed-size numbers.
    Number(u64),
    /// Strings, bytes and messages.
    Bytes(&'a [u8]),
}

/// The fields of a message; ends after the first error.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, DecodeError>> {
    let mut rest = Some(message);
    std::iter::from_fn(move || {
        let bytes = rest.take().filter(|bytes| !bytes.is_empty())?;
        Some(match field(bytes) {
            Some((field, after)) => {
                rest = Some(after);
                Ok(field)
            }
            None => Err(DecodeError::Malformed),
        })
    })
}

fn field(bytes: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (key, rest) = varint(bytes)?;
    let number = u32::try_from(key >> 3).ok().filter(|n| *n > 0)?;
    let (payload, rest) = match key & 7 {
        0 => {
            let (value, rest) = varint(rest)?;
            (Payload::Number(value), rest)
        }
        1 => {
            let (value, rest) = rest.split_first_chunk::<8>()?;
            (Payload::Number(u64::from_le_bytes(*value)), rest)
        }
        2 => {
            let (length, rest) = varint(rest)?;
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (Payload::Bytes(value), rest)
        }
        5 => {
            let (value, rest) = rest.split_first_chunk::<4>()?;
            (Payload::Number(u64::from(u32::from_le_bytes(*value))), rest)
        }
        _ => return None,
    };
    Some((Field { number, payload }, rest))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(i + 1..)?));
        }
    }
    None
}
