//! Why an order has failed.

use std::io;

/// `gone`: the driver is not registered.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) why: String,
    pub(super) gone: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, gone: false }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        error.to_string().into()
    }
}
