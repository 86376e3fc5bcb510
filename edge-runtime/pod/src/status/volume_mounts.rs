//! Mounts in a container's status (K8s pkg/kubelet/kubelet_pods.go, `convertToAPIContainerStatuses`).

use k8s_openapi::api::core::v1::{Container, ContainerStatus, VolumeMount, VolumeMountStatus};

use super::super::recursive_read_only::recursive_read_only;

/// Adds the mounts of each container to its status; both lists have the spec's order.
pub(super) fn add(containers: &[Container], statuses: &mut [ContainerStatus], supported: bool) {
    for (container, status) in containers.iter().zip(statuses) {
        let mounts = container.volume_mounts.iter().flatten();
        let mounts: Vec<VolumeMountStatus> = mounts.map(|mount| of(mount, supported)).collect();
        status.volume_mounts = Some(mounts).filter(|mounts| !mounts.is_empty());
    }
}

fn of(mount: &VolumeMount, supported: bool) -> VolumeMountStatus {
    let read_only = mount.read_only.unwrap_or(false);
    let recursive = recursive_read_only(mount, supported).unwrap_or(false);
    let mode = if recursive { "Enabled" } else { "Disabled" };
    VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: read_only.then_some(true),
        recursive_read_only: read_only.then(|| mode.to_owned()),
        ..VolumeMountStatus::default()
    }
}
