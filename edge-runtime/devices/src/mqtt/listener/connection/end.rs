//! How a connection of a client ends.

use std::fmt;
use std::io;

use crate::mqtt::listener::hub::Refusal;
use crate::mqtt::packet::Broken;

/// How it has ended.
pub(super) enum End {
    /// The client sent DISCONNECT.
    Orderly,
    /// The client or the network closed it.
    Lost(io::Error),
    /// The listener closed it, for this reason.
    Sent(String),
    Refused(Refusal),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Orderly => f.write_str("it has said so"),
            Self::Lost(error) => error.fmt(f),
            Self::Sent(why) => f.write_str(why),
            Self::Refused(why) => write!(f, "it was refused ({why:?})"),
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Broken> for End {
    fn from(Broken(why): Broken) -> Self {
        Self::Sent(why)
    }
}
