//! When a resource of the node runs short: which pressure to show, whom to end, which pod has outgrown its own limits.
//! Decisions are pure; `measure` and `walk` look at the host. Ends nothing itself: that is the node loop's.
//!
//! Follows K8s pkg/kubelet/eviction, with thresholds that scale down to a board's memory.

pub mod admit;
pub mod cadence;
pub mod limits;
pub mod manager;
pub mod measure;
pub mod message;
pub mod rank;
pub mod signal;
pub mod threshold;
pub mod walk;

pub use manager::{Manager, Verdict};
pub use signal::{Observation, Observations, Signal};
pub use threshold::{Amount, Threshold};
