//! Result of a run of `nft`.

/// Kind of the run, and its result.
pub(in crate::node) enum Done {
    /// Whether the kernel holds the desired state; at the start.
    Looked(bool),
    /// Why neighbours can bypass the rules, if they can.
    Replaced(Result<Option<String>, String>),
    Cleared(Result<(), String>),
}
