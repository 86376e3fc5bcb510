//! The bridge.
pub mod api;
