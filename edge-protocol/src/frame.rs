//! Text of a frame <-> message: size caps, slices of large messages, errors that name the field.
//!
//! Owns the codec. Knows nothing of sessions, sockets or what a message means.

mod direction;
mod field;

use crate::weight::weight;
use field::{field_at, offset};

pub use direction::{MAX_TO_CLOUD, MAX_TO_EDGE, MAX_WEIGHT_TO_CLOUD, Message};

/// A longer frame is refused before it is parsed. The websocket layer should have the same limit.
pub const MAX_FRAME: usize = 1 << 20;

/// Memory that all reports of one node may take while they are under way. The node's window ends at half of it, so that
/// the heaviest report on top still fits.
pub(crate) const MAX_REPORT_WEIGHT: usize = 2 * MAX_WEIGHT_TO_CLOUD;

/// Longest reason or error text sent; the rest is cut off.
const MAX_REASON: usize = 1024;

/// Messages longer than this travel in slices of this size, so that heartbeats find a gap between them
/// on a slow line. Escaping at most doubles the slice: JSON text holds no raw control characters.
pub const PART: usize = 64 << 10;

/// Depth of messages inside slices is one: a slice never contains a slice.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    #[error("frame of {0} bytes is over the limit of {MAX_FRAME}")]
    FrameTooLarge(usize),
    #[error("message of {size} bytes or more is over the limit of {limit}")]
    MessageTooLarge { size: usize, limit: usize },
    #[error("a message that takes {weight} bytes is over the limit of {limit}")]
    TooHeavy { weight: usize, limit: usize },
    #[error("frame is not an object with one message name as its key")]
    NotAMessage,
    #[error("message {message}: field {field}: {problem}")]
    Bad { message: String, field: String, problem: String },
    #[error("a slice inside slices")]
    NestedPart,
}

/// Content of one frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded<T> {
    Message(T),
    /// Well-formed, but of a type this build does not know: to be skipped and nacked by name.
    Unknown(String),
    /// A slice; the message is not complete yet.
    Incomplete,
}

/// JSON text of one message. It may be longer than a frame: see [`split`].
pub fn encode<T: Message>(message: &T) -> String {
    // Strings, numbers and JSON values in string-keyed maps: nothing in these types can fail to serialize.
    serde_json::to_string(message).expect("messages are plain data")
}

/// Cuts a message's text into frames if it is longer than [`PART`]; else returns it as it is.
pub fn split<T: Message>(text: String) -> Vec<String> {
    if text.len() <= PART {
        return vec![text];
    }
    let mut frames = Vec::with_capacity(text.len() / PART + 1);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(rest.floor_char_boundary(PART));
        rest = tail;
        frames.push(encode(&T::part(!rest.is_empty(), head.to_owned())));
    }
    frames
}

/// Reads the frames of one direction of one connection; holds the slices of at most one message.
#[derive(Debug, Default)]
pub struct Decoder {
    slices: String,
    last_size: usize,
    last_weight: usize,
    /// Maximum memory of a message for now, if lower than the limit of its direction.
    room: Option<usize>,
}

impl Decoder {
    /// Length of the text of the last whole message.
    pub fn last_size(&self) -> usize {
        self.last_size
    }

    /// Memory of the last message, as estimated by [`weight`].
    pub fn last_weight(&self) -> usize {
        self.last_weight
    }

    /// Limits what the next messages may take in memory, in bytes.
    pub fn set_room(&mut self, room: usize) {
        self.room = Some(room);
    }

    /// # Errors
    /// Any error means that the peer cannot be followed any further: drop the connection.
    pub fn decode<T: Message>(&mut self, frame: &str) -> Result<Decoded<T>, FrameError> {
        if frame.len() > MAX_FRAME {
            return Err(FrameError::FrameTooLarge(frame.len()));
        }
        self.last_weight = weigh::<T>(frame, self.room)?;
        let message = match parse::<T>(frame)? {
            Decoded::Message(message) => message,
            other => return Ok(other),
        };
        let (more, data) = match message.into_part() {
            Ok(part) => part,
            Err(whole) => {
                self.last_size = frame.len();
                return Ok(Decoded::Message(whole));
            }
        };
        let length = self.slices.len() + data.len();
        if length > T::MAX {
            return Err(FrameError::MessageTooLarge { size: length, limit: T::MAX });
        }
        self.slices.push_str(&data);
        if more {
            return Ok(Decoded::Incomplete);
        }
        self.last_size = length;
        let text = std::mem::take(&mut self.slices);
        self.last_weight = weigh::<T>(&text, self.room)?;
        match parse::<T>(&text)? {
            Decoded::Message(message) => match message.into_part() {
                Ok(_) => Err(FrameError::NestedPart),
                Err(whole) => Ok(Decoded::Message(whole)),
            },
            other => Ok(other),
        }
    }
}

/// Why a message of this text cannot be sent, if so: the other end refuses it and ends the connection.
pub(crate) fn too_large<T: Message>(text: &str) -> Option<String> {
    if text.len() > T::MAX {
        return Some(format!("message of {} bytes is over the link's limit of {}", text.len(), T::MAX));
    }
    weigh::<T>(text, None).err().map(|error| format!("{error}, though its text has only {} bytes", text.len()))
}

fn weigh<T: Message>(text: &str, room: Option<usize>) -> Result<usize, FrameError> {
    let limit = room.unwrap_or(T::MAX_WEIGHT).min(T::MAX_WEIGHT);
    match weight(text) {
        weight if weight > limit => Err(FrameError::TooHeavy { weight, limit }),
        weight => Ok(weight),
    }
}

fn parse<T: Message>(text: &str) -> Result<Decoded<T>, FrameError> {
    let name = message_name(text).ok_or(FrameError::NotAMessage)?;
    if !T::NAMES.contains(&name) {
        return Ok(Decoded::Unknown(name.chars().take(64).collect()));
    }
    serde_json::from_str(text).map(Decoded::Message).map_err(|e| FrameError::Bad {
        message: name.to_owned(),
        field: field_at(text, offset(text, &e)),
        // It may repeat a text of the peer.
        problem: shorten(e.to_string()),
    })
}

/// Cuts a reason or an error for a message.
pub(crate) fn shorten(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_REASON));
    text
}

/// The only key of the outer object, without reading the rest. Names have no escapes.
fn message_name(text: &str) -> Option<&str> {
    let rest = text.trim_start().strip_prefix('{')?.trim_start().strip_prefix('"')?;
    let (name, rest) = rest.split_once('"')?;
    (rest.trim_start().starts_with(':') && !name.contains('\\')).then_some(name)
}
