//! SPDY/3.1 as Kubernetes uses it: many byte streams in one upgraded connection, opened by the client.
//!
//! `kubectl` up to 1.29 speaks it for exec and attach, every `kubectl` for port-forward, and API servers speak it to
//! kubelets that do not declare to take WebSockets. It knows nothing of what streams are for.

pub(super) mod connection;
mod dictionary;
pub(super) mod frame;
pub(super) mod headers;
