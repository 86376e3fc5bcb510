//! Nodes of one LAN: which pods are behind which of them, and by which routes this node's pods reach them. Pure but for
//! [`routes`], which tells the kernel. Knows neither pods nor Services nor the link.
//!
//! One way through: [`view`] is what the bridge vouches for, [`plan`] makes routes of it as far as this node's own links
//! lead there, [`routes`] has the kernel hold those and no others.

pub mod plan;
pub mod routes;
pub mod view;

pub use plan::Plan;
pub use view::SiteView;
