//! The areas of `doctor`, one file for each: `look` reads facts of the host, `judge` decides by them alone.

pub(super) mod board;
pub(super) mod cgroups;
pub(super) mod clock;
pub(super) mod config;
pub(super) mod daemon;
pub(super) mod disk;
pub(super) mod kernel;
pub(super) mod limits;
pub(super) mod link;
pub(super) mod local_api;
pub(super) mod network;
pub(super) mod plugins;
pub(super) mod proxy;
pub(super) mod runtime;
pub(super) mod unit;
