//! What the helper for an order says.

use serde_json::Value;

/// What a helper said.
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
