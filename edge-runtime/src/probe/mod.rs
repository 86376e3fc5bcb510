//! Probes of running containers: when to run each, running it, and what a run of results means.
//!
//! [`worker`] is the pure part; `exec`, `http` and `tcp` run one probe; [`Supervisor`] keeps one task per probe on
//! the local executor and tells the loop only changes. Knows nothing of pod records.

mod supervisor;
pub mod worker;

pub use supervisor::{ExecProbe, ProbeEvent, ProbeSpec, ProbeTarget, Supervisor};
