//! One process per node that is the parent of every container, and the daemon's way of talking to it.
//!
//! The monitor runs the OCI runtime, copies the containers' output to log files and writes each exit code to disk
//! before telling anyone, so that the daemon may die at any moment. It knows nothing of pods, images, the store or
//! the link, and speaks only the small protocol of [`protocol`].
//!
//! - [`protocol`]: what crosses the socket; [`frame`]: how.
//! - [`exit`]: exit records, the only truth about how a container ended.
//! - [`client`]: for the daemon: connects, spawns, finds again what runs.
//! - [`exec`]: for the daemon: a process inside a running container, for probes and hooks.
//! - [`attach`]: for the daemon: what a container writes from now on, and what it reads.
//! - [`process`]: the monitor itself; [`detach`]: how it leaves the daemon's side.

mod adopt;
pub mod attach;
mod attached;
mod bytes;
mod cgroup;
pub mod client;
mod clients;
mod console;
mod container;
pub mod detach;
mod ending;
pub mod exec;
pub mod exit;
mod family;
pub mod frame;
mod jobs;
mod lifecycle;
mod link;
mod log_trouble;
mod oom;
mod pidfd;
pub mod process;
pub mod protocol;
mod runtime;
mod saved;
mod socket;
mod stdio;
mod token;
