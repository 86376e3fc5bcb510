//! Nodes of one LAN: the pods of each, and the routes by which this node's pods reach them. Pure except [`routes`],
//! which writes to the kernel. Does not know pods, Services or the link.
//!
//! Data flows one way: [`view`] is what the bridge vouches for, [`plan`] turns it into routes as far as this node's own
//! links lead there, [`routes`] makes the kernel hold exactly those.

pub mod plan;
pub mod routes;
pub mod view;

pub use plan::Plan;
pub use view::SiteView;
