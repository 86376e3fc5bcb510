//! Services on this node: which addresses and ports lead to which endpoints, as nft tables of the node's own. Knows
//! nothing of pods' objects, the store or the link: it is given views and the node's own pods.
//!
//! Data flows one way. [`view`] is a Service as the bridge sends it. [`endpoints`] adds this node's own pods and
//! chooses. [`rules`] computes the desired state of the kernel. [`table`] computes the changes, as a script for `nft`,
//! and [`apply`] runs it. [`datagrams`] finds flows that the kernel must then delete. [`bounds`] finds Services that
//! are too large, and [`outside`] decides which of several Services has an outside address. The design is that of
//! kube-proxy's nftables mode (K8s pkg/proxy/nftables/README.md): one lookup in a map, whatever the number of Services.

pub mod apply;
pub mod bounds;
pub mod datagrams;
pub mod elsewhere;
pub mod endpoints;
pub mod frame;
pub mod item;
pub mod node_ports;
pub mod offenders;
pub mod outside;
pub mod ranges;
pub mod routes;
pub mod rules;
pub mod table;
pub mod view;

pub use endpoints::{Here, LocalPod};
pub use table::Tables;
pub use view::{EndpointView, ServiceView};
