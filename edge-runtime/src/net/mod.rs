//! The pod network: pinned namespaces, the built-in bridge, addresses, and the files that tell a pod its names.
//!
//! [`Network`] is the built-in bridge; [`cni`] runs CNI plugins instead. The choice is per pod, when its sandbox is
//! made. Does not know stores, links or containers.

pub mod address;
pub mod authority;
pub mod bandwidth;
pub mod bridge;
pub mod cni;
pub mod dial;
pub mod dns_link;
pub mod error;
pub mod etc_files;
pub mod firewall;
pub mod host_addresses;
pub mod hostname;
pub mod hosts;
pub mod namespaces;
pub mod netlink;
pub mod policy;
pub mod prefix;
pub mod proxy;
pub mod resolv;
pub mod services;
mod settings;
pub mod site;
pub mod sysctl;
pub mod tls;
pub mod tunnel;

pub use address::Subnet;
pub use bridge::Network;
pub use error::NetError;
pub use namespaces::NamespaceMaker;
pub use settings::{NetworkSettings, hardware_address};
