//! Clients of the Kubernetes API as they are, in pods of a node with a local API: PyPI kubernetes, kubectl, kube-rs and
//! @kubernetes/client-node, each with the configuration that it finds in its pod. Guarantees are L4 and L6
//! (docs/guarantees.md, docs/api-for-pods.md).
//!
//! | module | owns |
//! |---|---|
//! | `site` | the node, and pods that run programs of this host |
//! | `everyday` | each client reads, writes and watches once; leader election |
//! | `cuts` | when the link is cut |
//! | `followed` | pure: what an informer said, and what that means |
//! | `informers` | informers over cuts of the link |
//! | `flood` | pods start while others flood the local API |

mod cuts;
mod everyday;
mod flood;
mod followed;
mod informers;
mod site;
