//! The node's DNS server: answers names of the cluster (Kubernetes' DNS specification, schema 1.1.0) and forwards all
//! others to the servers of the node. It reads input of pods, so it is a separate process without rights, the helper.
//! It outlives the daemon.
//!
//! | file | owns |
//! |---|---|
//! | `zone` | answers to queries about the cluster. Pure |
//! | `names` | records of Services in the zone. Pure |
//! | `wire` | queries and answers as bytes. Pure |
//! | `cache` | answers of other servers. Pure |
//! | `forward` | queries to other servers |
//! | `asks` | which unknown namespaces the helper asks the daemon about. Pure |
//! | `interests` | which of them the daemon asks the bridge to follow. Pure |
//! | `limits` | rate limits of a client. Pure |
//! | `serve` | the sockets of the helper |
//! | `health` | health check ports of Services, for load balancers |
//! | `control` | messages between daemon and helper |
//! | `client` | the daemon's side: keeps a helper running and sends it the zone |

pub mod asks;
pub mod cache;
pub mod client;
pub mod control;
pub mod forward;
pub mod health;
pub mod interests;
pub mod limits;
pub mod names;
pub mod serve;
pub mod wire;
pub mod zone;
