//! The node agent.
pub mod image;
pub mod pod;
pub mod probe;
