//! Actions for the owner of the core. Values only.

use sampan_devices_control::FromHelper;
use sampan_grpc::Status;

/// A message for a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
}

/// An action for the owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Publish(Message),
    Tell(FromHelper),
    /// Answers the call of this number that a mapper has made.
    Answer {
        call: u64,
        answer: Result<Vec<u8>, Status>,
    },
    /// Calls a mapper at this socket of the folder; the result comes back with the number of the call.
    Call {
        mapper: u64,
        socket: String,
        call: u64,
        path: &'static str,
        message: Vec<u8>,
    },
    /// The mapper is gone: its call is cancelled.
    Hangup {
        mapper: u64,
    },
}
