//! Devices of nodes (devices.kubeedge.io): what is sent to nodes, and how their reports are written.
//!
//! | module | owns |
//! |---|---|
//! | `view` | pure: Devices and models as nodes see them |
//! | `index` | pure: which node has which Devices, and which models these name |
//! | `served` | which kinds of the group the API serves |
//! | `watch` | the one watch for all nodes, while one of them takes Devices |
//! | `problems` | pure: problems of Devices, and which of them are reported |
//! | `events` | creates events about them |
//! | `checked` | pure: which parts of a report may be written |
//! | `status` | pure: what to write, from a report and the present status in the API |
//! | `budget` | pure: rate limits of writes |
//! | `turns` | waits for these limits |
//! | `write` | writes one report |
//! | `silence` | pure: nodes that have been silent so long that their devices' statuses are stale |
//! | `silent` | these nodes, with a clock, for all tasks |
//! | `state` | what the tasks share |
//! | `stale` | pure: the mark in a status, and its removal |
//! | `mark` | writes the mark |
//!
//! Knows no session and no connection.

mod budget;
mod checked;
pub(super) mod events;
mod index;
pub(super) mod mark;
mod problems;
mod served;
mod silence;
mod silent;
mod stale;
pub(super) mod state;
mod status;
mod turns;
pub(super) mod view;
pub(super) mod watch;
pub(super) mod write;

pub use index::Index;
pub use status::{Plan, Speaker, plan};
pub use view::{Device, Model};
