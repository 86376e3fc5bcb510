//! What a run of `nft` says of itself.

use crate::net::services::table::ServiceName;

/// What came of it.
pub(in crate::node) enum Done {
    /// At the start: whether the kernel holds the desired state.
    Looked(bool),
    Changed(Result<(), String>),
    /// The Services because of which the kernel refuses; `None` if unknown.
    Isolated(Option<Vec<ServiceName>>),
    Swept(Result<(), String>),
}
