//! Harness of the end-to-end tests: real binaries, real kubectl, a real API. Owns starting, waiting and
//! cleaning up; knows nothing of what is tested.
//!
//! The API is the embedded one, or a real API server when `TEST_KUBECONFIG` names its kubeconfig: the same tests
//! run on both. Binaries come from `SAMPAN_BIN`, else from the `debug` folder of this workspace.

pub mod clock;
pub mod cluster;
pub mod faults;
#[cfg(test)]
mod findings;
pub mod fuse;
mod http;
pub mod http_proxy;
pub mod kubectl;
pub mod lan;
pub mod manifest;
pub mod node;
#[cfg(test)]
mod packages;
pub mod pictures;
pub mod ports;
pub mod process;
#[cfg(test)]
mod reference;
pub mod registry;
pub mod silent;
#[cfg(test)]
mod sources;
pub mod uplink;
pub mod wait;

pub use clock::FakeClock;
pub use cluster::Cluster;
pub use faults::{FaultProxy, Faults};
pub use fuse::{Fuse, SickFile};
pub use http::get;
pub use http_proxy::HttpProxy;
pub use kubectl::Kubectl;
pub use lan::Lan;
pub use node::EdgeNode;
pub use registry::Registry;
pub use silent::Silent;
pub use uplink::Uplink;
pub use wait::until;

/// Ends the test with a notice when it cannot run here; gives whether it can.
#[must_use]
pub fn can_run() -> bool {
    let root = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"));
    if !root {
        use std::io::Write;
        // Only a notice: nothing to do when stderr is gone.
        let _ = writeln!(std::io::stderr(), "skipped: containers and mounts need root");
    }
    root
}
