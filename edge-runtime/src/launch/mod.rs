//! From a pod that should run to containers that do: bundle, OCI configuration, start.

pub mod base;
pub mod cgroups;
pub mod container;
pub mod cpus;
pub mod devices;
pub mod error;
pub mod look;
pub mod looking;
pub mod oci_spec;
pub mod open;
pub mod resources;
pub mod runtimes;
pub mod sandbox;
pub mod security;
pub mod spec_error;
pub mod teardown;
pub mod user;
pub(crate) mod user_ns;

pub use container::Attempt;
pub use open::Launch;
