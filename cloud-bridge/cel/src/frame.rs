//! Questions and answers as they cross the socket: four bytes of length, then JSON.

use std::io::{self, Read, Write};

use serde::Serialize;

/// Maximum size of a question in bytes: two objects and a schema, each of the maximum size of a body.
pub const QUESTION_MAX: u32 = 16 << 20;
/// The largest answer.
pub const ANSWER_MAX: u32 = 1 << 20;

/// One message with its length in front.
///
/// # Errors
/// It is larger than `most`.
pub fn encode(message: &impl Serialize, most: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).ok().filter(|length| *length <= most);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "too large"))?;
    if let Some(head) = bytes.first_chunk_mut() {
        *head = length.to_be_bytes();
    }
    Ok(bytes)
}

/// Length of the message behind these four bytes.
///
/// # Errors
/// It is larger than `most`.
pub fn length(head: [u8; 4], most: u32) -> io::Result<usize> {
    let length = u32::from_be_bytes(head);
    if length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too large"));
    }
    Ok(length as usize)
}

/// Reads one message, as it was sent; `None` at the end of the stream.
pub(crate) fn read(from: &mut impl Read, most: u32) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 4];
    match from.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut body = vec![0; length(head, most)?];
    from.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Writes one message.
pub(crate) fn write(to: &mut impl Write, message: &impl Serialize, most: u32) -> io::Result<()> {
    to.write_all(&encode(message, most)?)?;
    to.flush()
}
