//! The node agent.
pub mod pod;
pub mod probe;
