//! From a pod that should run to containers that do: bundle, OCI configuration, start.

pub mod oci_spec;
pub mod resources;
pub mod user;
