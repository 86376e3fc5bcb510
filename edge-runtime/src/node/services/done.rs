//! Result of a run of `nft`.

use crate::net::services::table::ServiceName;

/// Kind of the run, and its result.
pub(in crate::node) enum Done {
    /// Whether the kernel holds the desired state; at the start.
    Looked(bool),
    Changed(Result<(), String>),
    /// The Services because of which the kernel refuses; `None` if unknown.
    Isolated(Option<Vec<ServiceName>>),
    Swept(Result<(), String>),
}
