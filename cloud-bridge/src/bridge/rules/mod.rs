//! Rules (rules.kubeedge.io): messages of the brokers of nodes and requests of programs on nodes to HTTP servers, and
//! HTTP requests to the brokers of nodes and to servers on nodes.
//!
//! | module | owns |
//! |---|---|
//! | `view` | pure: rules and endpoints as they are written |
//! | `route`, `paths` | pure: what a valid rule does, and which paths it takes |
//! | `index` | pure: which rules are valid, and which node gets which |
//! | `watch` | the one watch for all, while a task needs it |
//! | `post` | one HTTP request to a target |
//! | `state` | what the tasks share |
//! | `deliver` | one message of a node, until its target has it |
//! | `respond` | one request of a program on a node |
//! | `desk` | interface for the listener for rules |
//! | `tally` | pure: counters of each rule, and which of them to write |
//! | `write` | writes them |
//!
//! Knows no socket of a node and no certificate.

pub(super) mod deliver;
pub mod desk;
mod index;
mod paths;
mod post;
pub(super) mod respond;
mod route;
pub(super) mod state;
pub(super) mod tally;
mod view;
pub(super) mod watch;
mod write;

pub use index::Index;
pub use route::{Route, Source, Target};
pub use view::{Endpoint, EndpointType, Rule};
