//! Controllers of a cluster, for an API that has no controller manager. They know the API by a client, so each would run
//! against a real cluster, too.

pub mod attach_detach;
mod events;
mod followers;
pub mod load_balancer;
pub mod local_volumes;
pub mod node_lifecycle;
mod placement;
pub mod podautoscaler;
pub mod pods;
mod rate;
pub mod scheduler;
mod watch;
pub mod workloads;
