//! From a pod's container to its OCI runtime configuration. Pure: everything that must be looked up comes in.
//!
//! Follows what the kubelet asks of a CRI runtime and what containerd makes of it, so that a container sees the
//! same world here as on any other node.

mod input;

pub use input::{HostDevice, HostFacts, Input, Mount, MountKind, Namespaces, PidNamespace, Propagation, SpecError};

use oci_spec::runtime::Spec;

/// The configuration to be written as `config.json` of the bundle.
pub fn build(input: &Input) -> Result<Spec, SpecError> {
    let _ = input;
    Ok(Spec::default())
}
