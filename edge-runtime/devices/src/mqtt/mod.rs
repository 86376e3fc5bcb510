//! A client of an MQTT broker, version 3.1.1: subscribes, passes received messages on, publishes, and reconnects until
//! it is stopped. And a small server for nodes without a broker. Does not know payloads.
//!
//! | file | owns |
//! |---|---|
//! | `packet` | packets as bytes |
//! | `connection` | one connection, from CONNECT to its end |
//! | `client` | where the broker is, and the next try |
//! | `file` | files with passwords |
//! | `filters` | what is subscribed to for a while |
//! | `queue` | messages that wait for the broker |
//! | `listener` | the server |
//! | `news` | events of either |
//! | `outlets` | where messages of the node go |

mod client;
mod connection;
mod file;
mod filters;
pub mod listener;
mod news;
mod outlets;
mod packet;
mod queue;

pub(crate) use packet::fuzz as packet_fuzz;

pub use client::{Broker, run};
pub use filters::Filters;
pub use listener::{Filter, Listener};
pub use news::News;
pub use outlets::Outlets;
pub use queue::{Queue, queue};
