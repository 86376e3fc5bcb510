//! What every part of the bridge knows of Kubernetes objects: how they are read, named, selected, measured and complained
//! about. Named after the module of Kubernetes. Nothing here knows a kind, a store, a link or a request.
//!
//! | module | owns |
//! |---|---|
//! | [`json`], [`meta`], [`key`] | fields of an object, its metadata, its name |
//! | [`names`] | the syntax of names, labels, ports |
//! | [`field`] | what is wrong with a field |
//! | [`quantity`] | amounts |
//! | [`selector`] | label and field selectors |
//! | [`user`] | who asks |
//! | [`well_known`] | words that several parts know |
//! | [`clock`] | the time of day, for what expires |
//! | [`cron`] | schedules and time zones |
//! | [`read_as`] | objects of which only a part is read |
//! | [`pace`] | time slices of the one thread, and waiting |
//! | [`aside`] | threads beside it, for work on large objects |
//! | [`flow`], [`shares`], [`turns`] | whom something is counted for, how much each may have, and whose turn it is |
//! | [`typed`] | JSON read as a type |
//! | [`panics`] | what a panic ends and how it is told |

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
mod slim;
pub mod turns;
pub mod typed;
pub mod user;
pub mod well_known;
