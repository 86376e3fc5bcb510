//! The Node object this machine reports about itself. Pure: facts, settings and time in, object out.
//!
//! Knows nothing of how it is sent and when.

pub mod board;
pub mod conditions;
pub mod node;

pub use board::{Board, Upgrade};
pub use conditions::{Pressure, ReadyState};
pub use node::{Amount, NodeImage, NodeSettings, node_object, standard_labels};
