//! NetworkPolicies on this node: who may send what to its pods, and what they may send, as nft tables of the node's own.
//! Knows nothing of pods' objects, the store or the link: it is given views and the node's own pods.
//!
//! One way through: [`view`] is what the bridge tells of a policy, `choose` finds the pods that it is for, [`peers`] whom a peer
//! means, [`rules`] makes of all that the text of the tables, within [`bounds`], `neighbours` the text of the one that keeps
//! pods of one bridge from going around them, and [`apply`] runs it. Kubernetes' word is staging/src/k8s.io/api/networking/v1/types.go.

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
