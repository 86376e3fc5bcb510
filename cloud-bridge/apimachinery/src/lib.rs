//! Common code for Kubernetes objects: reading, names, selectors, quantities and error messages. Named after the module
//! of Kubernetes. Must not know kinds, stores, links or requests.
//!
//! | module | owns |
//! |---|---|
//! | [`json`], [`meta`], [`key`] | fields of an object, its metadata, its name |
//! | [`names`] | the syntax of names, labels, ports |
//! | [`field`] | errors of fields |
//! | [`quantity`] | amounts |
//! | [`status`] | the answer to a failed request |
//! | [`selector`] | label and field selectors |
//! | [`user`] | the user of a request |
//! | [`well_known`] | names that several parts use |
//! | [`clock`] | the time of day, for expiry |
//! | [`cron`] | schedules and time zones |
//! | [`read_as`], [`slim`] | objects of which only a part is read |
//! | [`pace`] | time slices of the one thread, and waiting |
//! | [`aside`] | threads beside it, for work on large objects |
//! | [`flow`], [`shares`], [`turns`] | the client for which something is counted, its share, and fair queues |
//! | [`typed`] | JSON read as a type |
//! | [`panics`] | the scope of a panic and its log line |

pub mod aside;
pub mod clock;
pub mod cron;
pub mod field;
pub mod flow;
pub mod json;
pub mod key;
pub mod meta;
pub mod names;
pub mod pace;
pub mod panics;
pub mod quantity;
pub mod selector;
pub mod shares;
pub mod slim;
pub mod status;
pub mod turns;
pub mod typed;
pub mod user;
pub mod well_known;
