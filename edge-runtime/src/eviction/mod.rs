//! Shortages of the node's resources: which pressure to report, which pod to evict, and which pod exceeds its own
//! limits. Decisions are pure; `measure` and `walk` observe the host. The node loop ends pods.
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
