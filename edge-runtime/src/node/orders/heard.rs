//! Message of the helper for an order.

use serde_json::Value;

/// A message of a helper.
pub(in crate::node) struct Heard {
    /// Number of the helper.
    pub(super) number: u64,
    pub(super) said: Said,
}

pub(super) enum Said {
    Status(Value),
    /// How it ended; none: well.
    End(Option<String>),
}
