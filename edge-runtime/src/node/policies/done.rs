//! What a run of `nft` says of itself.

/// What came of it.
pub(in crate::node) enum Done {
    /// At the start: whether the kernel holds the desired state.
    Looked(bool),
    /// And why neighbours may go around the rules, if so.
    Replaced(Result<Option<String>, String>),
    Cleared(Result<(), String>),
}
