//! The node agent.

pub mod image;
pub mod launch;
pub mod logs;
pub mod monitor;
pub mod net;
pub mod node_status;
pub mod paths;
pub mod pod;
pub mod probe;
pub mod sys;
pub mod volume;
