//! Subresources that do something of their own: binding, eviction, logs, tokens, scale, finalize.

mod driver_audiences;
pub(crate) mod eviction;
pub(crate) mod finalize;
pub(crate) mod pod;
pub(crate) mod scale;
pub(crate) mod service;
pub(crate) mod token;
