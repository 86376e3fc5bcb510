//! What a pod's security context means on this node: seccomp and AppArmor profiles, sysctls, and which wishes are
//! refused before anything is made. Decisions are pure; each file says what little it reads.

pub mod admit;
pub mod apparmor;
pub mod seccomp;
pub mod sysctl;

use k8s_openapi::api::core::v1::{Container, Pod};

/// Every container of the pod, init containers first.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
    init.chain(spec.map(|spec| spec.containers.iter()).into_iter().flatten())
}
