//! A client of an MQTT broker, version 3.1.1: subscribes, hands over what comes, publishes what it is given, and connects again
//! for as long as it is wanted. Knows no topic and no payload.
//!
//! | file | owns |
//! |---|---|
//! | `packet` | packets as bytes |
//! | `connection` | one connection, from CONNECT to its end |
//! | `client` | where the broker is, and the next try |
//! | `queue` | messages that wait for the broker |

mod client;
mod connection;
mod packet;
mod queue;

pub use client::{Broker, News, run};
pub use queue::{Queue, queue};
