//! Limits of each direction, and the names of its messages.

use crate::message::{ToCloud, ToEdge};
use serde::{Serialize, de::DeserializeOwned};

/// A longer message to the edge is refused while its slices are collected. A ConfigMap or Secret may hold
/// 1 MiB, and JSON writes a control character in six bytes.
pub const MAX_TO_EDGE: usize = 8 << 20;

/// The same to the cloud. The largest honest report is the copy of a static pod.
pub const MAX_TO_CLOUD: usize = 2 << 20;

/// A message to the cloud that takes more memory than this is refused before it is parsed. The largest honest one is a
/// report; its text is a tenth of this.
pub const MAX_WEIGHT_TO_CLOUD: usize = 8 << 20;

/// A direction's message enum.
pub trait Message: Serialize + DeserializeOwned + Sized {
    /// Longest text of a message.
    const MAX: usize;
    /// Most memory that a message takes.
    const MAX_WEIGHT: usize;
    /// Names of all variants as they stand on the wire.
    const NAMES: &'static [&'static str];
    fn part(more: bool, data: String) -> Self;
    fn into_part(self) -> Result<(bool, String), Self>;
}

macro_rules! message {
    ($type:ty, $max:expr, $weight:expr, $names:expr) => {
        impl Message for $type {
            const MAX: usize = $max;
            const MAX_WEIGHT: usize = $weight;
            const NAMES: &'static [&'static str] = $names;

            fn part(more: bool, data: String) -> Self {
                Self::Part { more, data }
            }

            fn into_part(self) -> Result<(bool, String), Self> {
                match self {
                    Self::Part { more, data } => Ok((more, data)),
                    other => Err(other),
                }
            }
        }
    };
}

message!(
    ToEdge,
    MAX_TO_EDGE,
    // The node trusts its bridge, and takes an object as large as the API lets it be.
    usize::MAX,
    &[
        "welcome",
        "refuse",
        "syncBegin",
        "syncDigests",
        "syncEnd",
        "syncDone",
        "put",
        "delete",
        "upAck",
        "upRefuse",
        "streamOpen",
        "streamData",
        "streamCredit",
        "streamEnd",
        "token",
        "renewed",
        "devicesAck",
        "messageAck",
        "call",
        "response",
        "pong",
        "unsupported",
        "part",
    ]
);
message!(
    ToCloud,
    MAX_TO_CLOUD,
    MAX_WEIGHT_TO_CLOUD,
    &[
        "hello",
        "ack",
        "nack",
        "need",
        "unlisted",
        "up",
        "streamData",
        "streamCredit",
        "streamEnd",
        "tokenRequest",
        "renew",
        "interests",
        "devices",
        "message",
        "answer",
        "request",
        "apiOpen",
        "ping",
        "unsupported",
        "part",
    ]
);
