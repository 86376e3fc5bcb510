//! From a pod that should run to containers that do: bundle, OCI configuration, start.

pub mod cgroups;
pub mod container;
mod cwd;
pub mod devices;
pub mod launcher;
pub mod look;
pub mod looking;
pub mod oci_spec;
mod own_boot;
mod owning;
mod pause;
mod plugin;
mod resize;
pub mod resources;
pub mod runtimes;
pub mod sandbox;
pub mod security;
mod termination;
pub mod user;
pub(crate) mod user_ns;
mod variables;

pub use container::Attempt;
pub use launcher::Launcher;
