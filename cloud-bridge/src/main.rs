//! The cloud-bridge command.
fn main() {}
