//! The pod network: pinned namespaces, the built-in bridge, addresses, and the files that tell a pod its names.
//!
//! [`Network`] is the one seam between "a pod has a network namespace" and "that namespace is connected". A CNI
//! implementation is a second type with the same five calls (`ensure`, `attach`, `detach`, `cleanup`, `teardown`)
//! that hands out the address itself. Knows nothing of stores, links or containers.

pub mod address;
pub mod bridge;
pub mod dial;
pub mod error;
pub mod etc_files;
pub mod firewall;
pub mod hostname;
pub mod hosts;
pub mod namespaces;
pub mod netlink;
pub mod resolv;
pub mod sysctl;

pub use address::Subnet;
pub use bridge::{Network, NetworkSettings};
pub use error::NetError;
pub use namespaces::NamespaceMaker;
