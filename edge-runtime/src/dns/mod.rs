//! Names of the cluster, answered on the node (Kubernetes' DNS specification, schema 1.1.0), and everybody else's names asked
//! for where the node itself asks. A process of its own, which outlives the daemon, since it reads what pods send.
//!
//! | file | owns |
//! |---|---|
//! | `zone` | what is answered to a question about the cluster. Pure |
//! | `names` | what of Services is in the zone. Pure |
//! | `wire` | questions and answers as bytes. Pure |
//! | `cache` | what others have answered. Pure |
//! | `forward` | questions that others answer |
//! | `asks` | which unknown namespaces the helper asks the daemon about. Pure |
//! | `interests` | which of them the daemon asks the bridge about. Pure |
//! | `limits` | how much one asker may ask. Pure |
//! | `serve` | the sockets of the helper |
//! | `health` | where load balancers ask whether a Service has endpoints here |
//! | `control` | what daemon and helper tell each other |
//! | `client` | the daemon's side: a helper that runs, with the newest zone |

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
