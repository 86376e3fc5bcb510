//! What pods and containers use of memory and processes, from their cgroups. Reads only.

use k8s_openapi::api::core::v1::Pod;

use super::launcher::Launcher;
use super::sandbox::class;

impl Launcher {
    /// Bytes that could not be had back without swapping, of a whole pod; `None` when it has no cgroup (any more).
    pub fn pod_memory(&self, pod: &Pod, uid: &str) -> Option<u64> {
        self.cgroups.working_set(&self.cgroups.pod_path(class(pod), uid))
    }

    /// As [`Launcher::pod_memory`], of one container.
    pub fn container_memory(&self, pod: &Pod, uid: &str, id: &str) -> Option<u64> {
        self.cgroups.working_set(&format!("{}/{id}", self.cgroups.pod_path(class(pod), uid)))
    }

    /// Processes and threads of a container.
    pub fn container_processes(&self, pod: &Pod, uid: &str, id: &str) -> Option<u64> {
        self.cgroups.processes(&format!("{}/{id}", self.cgroups.pod_path(class(pod), uid)))
    }
}
