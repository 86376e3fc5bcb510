//! What crosses the link between `edge-runtime` and `cloud-bridge`: start here.
//!
//! No I/O, no clock, no async runtime: frames and time go in, frames and events come out, so that
//! both programs and the simulation run the same code.

pub mod message;
