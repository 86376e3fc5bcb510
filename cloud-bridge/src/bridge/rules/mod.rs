//! Rules (rules.kubeedge.io): messages of the brokers of nodes and requests of programs on them that go to HTTP servers, and requests
//! over HTTP that go to the brokers of nodes and to servers on them.
//!
//! | module | owns |
//! |---|---|
//! | `view` | pure: rules and their ends as they are written |
//! | `index` | pure: which of them work, what each does, and which node is told of which |
//! | `watch` | the one watch for all, while a task needs it |
//! | `post` | one HTTP request to a target |
//! | `deliver` | one message of a node, until its target has it |
//! | `respond` | one request of a program on a node |
//! | `desk` | what the listener for rules asks of this bridge |
//! | `tally` | pure: counters of each rule, and which of them to write |
//! | `write` | writes it |
//!
//! Knows no socket of a node and no certificate.

pub(super) mod deliver;
pub mod desk;
mod index;
pub(super) mod post;
pub(super) mod respond;
pub(super) mod tally;
mod view;
pub(super) mod watch;
mod write;

pub use index::{Index, Route, Source, Target};
pub use view::{Endpoint, EndpointType, Rule};
