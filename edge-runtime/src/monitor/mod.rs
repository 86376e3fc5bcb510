//! The daemon's way of talking to the monitor ([`sampan_monitor`]), and its own processes in containers.
//!
//! - [`client`]: connects, spawns, finds again what runs.
//! - [`exec`]: a process inside a running container, for probes, hooks and streams.
//! - [`attach`]: what a container writes from now on, and what it reads.

pub mod attach;
pub mod client;
pub mod exec;
mod link;
