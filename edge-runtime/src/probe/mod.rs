//! Probes of running containers: when to run each, how to run it, and the meaning of its results. And lifecycle hooks,
//! which have the same parts.
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
pub use run::{ExecProbe, ExecResult};
pub use supervisor::{ProbeEvent, ProbeSpec, ProbeTarget, Supervisor};
