//! The node agent: see `node` for the loop and `launch` for how a pod becomes running containers.

use sampan_pod as pod;
use sampan_sys as sys;

pub mod cli;
pub mod clock;
pub mod config;
pub mod counters;
pub mod devices;
pub mod dns;
pub mod eviction;
pub mod health;
pub mod helper;
pub mod image;
pub mod intake;
pub mod launch;
pub mod link;
pub mod logs;
pub mod monitor;
pub mod net;
pub mod node;
pub mod node_status;
pub mod paths;
pub mod probe;
pub mod store;
pub mod volume;
