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
    let mut all = Vec::new();
    for has in plugins.kept.of(uid, &status.name) {
        if has.ids.is_empty() {
            continue;
        }
        let mut resources = Vec::new();
        for id in &has.ids {
            let health = Some(plugins.health(&has.resource, id).to_owned());
            resources.push(ResourceHealth { resource_id: id.clone(), health, ..ResourceHealth::default() });
        }
        all.push(ResourceStatus { name: has.resource.clone(), resources: Some(resources) });
    }
    status.allocated_resources_status = (!all.is_empty()).then_some(all);
}
