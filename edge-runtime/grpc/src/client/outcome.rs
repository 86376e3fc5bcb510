//! How a call ended.

use crate::{Code, Status};

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answered(Result<Vec<u8>, Status>),
    /// The call has certainly not reached the server: it can be retried.
    Untaken(Status),
}

pub(super) fn unavailable(why: impl ToString) -> Status {
    Status::new(Code::Unavailable, why.to_string())
}
