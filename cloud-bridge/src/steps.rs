//! Lengths of the steps of the bridge's one thread, for `tests/scale`: the time from one point at which other tasks
//! could run to the next. Only in builds with `--cfg tokio_unstable` (tokio's task hooks); others do not contain it.
//!
//! The file that `SAMPAN_STEPS` names is written about once a second: the number of steps by length, in total and by
//! place (where a task was spawned, or the name of a part of the main task), and the longest ones.
#![allow(unexpected_cfgs, reason = "the flag is tokio's")]

#[cfg(tokio_unstable)]
mod measured;

/// Measures the tasks of a runtime before it is built.
pub fn watch(builder: &mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder {
    #[cfg(tokio_unstable)]
    measured::watch(builder);
    builder
}

/// Measures the polls of the task that a runtime blocks on.
#[cfg(not(tokio_unstable))]
pub fn main<F: Future>(future: F) -> F {
    future
}

/// Measures the polls of a part of the main task.
#[cfg(not(tokio_unstable))]
pub fn part<F: Future>(_name: &str, future: F) -> F {
    future
}

#[cfg(tokio_unstable)]
pub use measured::{main, part};
