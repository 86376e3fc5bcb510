//! Where the cgroups of pods and containers are.

use k8s_openapi::api::core::v1::Pod;

use super::sandbox::class;
use crate::sys::cgroup::Cgroups;

/// Cgroup of a pod.
pub fn cgroup_of_pod(cgroups: &Cgroups, pod: &Pod, uid: &str) -> String {
    cgroups.pod_path(class(pod), uid)
}

/// Cgroup of a container.
pub fn cgroup_of_container(cgroups: &Cgroups, pod: &Pod, uid: &str, id: &str) -> String {
    cgroups.container_path(class(pod), uid, id)
}
