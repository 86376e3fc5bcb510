//! Health of devices in the statuses of pods (KEP-4680; K8s manager.go, `UpdateAllocatedResourcesStatus`).

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus, ResourceHealth, ResourceStatus};

use crate::launch::devices::plugins::Plugins;

/// Adds to each app container what it has of plugins.
pub(in crate::node) fn add(status: &mut PodStatus, uid: &str, plugins: &Plugins) {
    if !plugins.kept.has(uid) {
        return;
    }
    for container in status.container_statuses.iter_mut().flatten() {
        of_container(container, uid, plugins);
    }
}

fn of_container(status: &mut ContainerStatus, uid: &str, plugins: &Plugins) {
    let has = plugins.kept.of(uid, &status.name).into_iter().flat_map(|of| of.iter());
    let all = has.filter(|(_, allocation)| !allocation.ids.is_empty()).map(|(resource, allocation)| {
        let health = |id: &String| ResourceHealth {
            resource_id: id.clone(),
            health: Some(plugins.health(resource, id).to_owned()),
            ..ResourceHealth::default()
        };
        let resources = allocation.ids.iter().map(health).collect();
        ResourceStatus { name: resource.clone(), resources: Some(resources) }
    });
    let all: Vec<ResourceStatus> = all.collect();
    status.allocated_resources_status = (!all.is_empty()).then_some(all);
}
