//! The process that holds the pid namespace of a pod with `shareProcessNamespace`: remembered as a container of its
//! own, which no API shows. Pure; what it does is in `cli/helpers.rs`, how it is made in `launch/container/pause.rs`.

use k8s_openapi::api::core::v1::PodSpec;

/// Its name among the pod's containers. No container can have it: their names have no capitals.
pub const PAUSE: &str = "POD";

/// Whether the containers of a pod see each other's processes (and need a process that holds the namespace).
pub fn shares_processes(spec: &PodSpec) -> bool {
    spec.share_process_namespace == Some(true) && spec.host_pid != Some(true)
}
