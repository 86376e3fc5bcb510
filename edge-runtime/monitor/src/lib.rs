//! The monitor, one process per node that is the parent of every container, and the code that it shares with the
//! daemon.
//!
//! The monitor runs the OCI runtime, copies the containers' output to log files and writes each exit code to disk
//! before telling anyone, so that the daemon may die at any moment. It knows nothing of pods, images, the store or
//! the link, and speaks only the small protocol of [`protocol`].
//!
//! Shared with the daemon:
//! - [`protocol`]: what crosses the socket; [`frame`]: how; [`files`]: where.
//! - [`exit`]: exit records, the only truth about how a container ended.
//! - [`oci`]: what an OCI runtime leaves behind; [`logs`]: the form of log files.
//!
//! [`process`] is the monitor itself; the daemon's way of talking to it is the daemon's.

mod bytes;
pub mod exit;
pub mod files;
pub mod frame;
pub mod logs;
pub mod oci;
pub mod process;
pub mod protocol;
