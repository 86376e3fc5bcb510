//! The edge-runtime command.
fn main() {}
