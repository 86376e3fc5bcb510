//! What a run of `nft` says of itself.

use crate::net::services::table::ServiceName;

/// What came of it.
pub(in crate::node) enum Done {
    /// At the start: whether the kernel holds what it is to hold.
    Looked(bool),
    Changed(Result<(), String>),
    /// Because of whom it refuses; `None` for nobody in particular.
    Isolated(Option<Vec<ServiceName>>),
    Swept(Result<(), String>),
}
