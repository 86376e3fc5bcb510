//! Probes of running containers: when to run each, running it, and what a run of results means. And lifecycle
//! hooks, which are made of the same things.
//!
//! [`worker`] is the pure part; `run` makes one probe with `http`, `tcp` or the exec function given from outside;
//! [`Supervisor`] keeps one task per container on the local executor and tells the loop only changes. Knows nothing
//! of pod records.

mod grpc;
mod hook;
mod http;
mod run;
mod supervisor;
mod tcp;
pub mod worker;

pub use hook::{HookCall, HookDone};
pub use supervisor::{ExecProbe, ExecResult, ProbeEvent, ProbeSpec, ProbeTarget, Supervisor};
