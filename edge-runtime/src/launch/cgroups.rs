//! Where the cgroups of pods and containers are.

use k8s_openapi::api::core::v1::Pod;

use crate::pod::qos::{QosClass, qos_class};
use crate::sys::cgroup::{Cgroups, PodCgroupClass};

/// Cgroup of a pod.
pub fn cgroup_of_pod(cgroups: &Cgroups, pod: &Pod, uid: &str) -> String {
    cgroups.pod_path(class(pod), uid)
}

/// Cgroup of a container.
pub fn cgroup_of_container(cgroups: &Cgroups, pod: &Pod, uid: &str, id: &str) -> String {
    cgroups.container_path(class(pod), uid, id)
}

pub(super) fn class(pod: &Pod) -> PodCgroupClass {
    match qos_class(pod) {
        QosClass::Guaranteed => PodCgroupClass::Guaranteed,
        QosClass::Burstable => PodCgroupClass::Burstable,
        QosClass::BestEffort => PodCgroupClass::BestEffort,
    }
}
