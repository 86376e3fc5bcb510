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
        self.cgroups.working_set(&self.cgroups.container_path(class(pod), uid, id))
    }

    /// As [`crate::sys::cgroup::Cgroups::keep_oom_group`].
    pub fn keep_oom_group(&self, pod: &Pod, uid: &str, id: &str) {
        self.cgroups.keep_oom_group(&self.cgroups.container_path(class(pod), uid, id));
    }

    /// Processes and threads of a container.
    pub fn container_processes(&self, pod: &Pod, uid: &str, id: &str) -> Option<u64> {
        self.cgroups.processes(&self.cgroups.container_path(class(pod), uid, id))
    }
}
