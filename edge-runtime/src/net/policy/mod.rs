//! NetworkPolicies on this node: which traffic its pods may receive and send, as separate nft tables. Its inputs are
//! views and the node's own pods; it does not know pod objects, the store or the link.
//!
//! Data flows one way. [`view`] is a policy as the bridge sends it. `choose` finds the pods that it selects. [`peers`]
//! resolves its peers. [`rules`] writes the text of the tables, within [`bounds`]. `neighbours` writes the table that
//! keeps pods of one bridge from bypassing them. [`apply`] runs the text. The reference is K8s
//! staging/src/k8s.io/api/networking/v1/types.go.

pub mod apply;
mod blocks;
pub mod bounds;
mod choose;
mod neighbours;
pub mod peers;
mod ports;
pub mod rules;
pub mod selector;
pub mod view;
pub mod world;

pub use peers::{Link, LocalPod};
pub use rules::{Tables, tables};
pub use view::{Peers, Policy};
pub use world::World;
