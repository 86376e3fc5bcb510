//! Images through the real binary: archives made by skopeo, a real registry, and peers that lie, stall and cut.

#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod cuts;
mod deep;
mod import;
mod liars;
mod node;
mod private;
mod proxy;
mod pull;
mod registry;
mod wire;
