//! Ephemeral containers (`kubectl debug`): as containers, so that all else treats them alike. Pure.
//!
//! They start after the pod, run once, and do not affect its phase or readiness.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};

/// The ephemeral containers of a pod; fields they may not have (ports, probes, hooks, resources) are left out.
pub fn containers(spec: &PodSpec) -> Vec<Container> {
    spec.ephemeral_containers.iter().flatten().map(container).collect()
}

/// Returns the target container of the ephemeral container `name`, whose processes it shares.
pub fn target<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let mut all = pod.spec.as_ref()?.ephemeral_containers.iter().flatten();
    let found = all.find(|e| e.name == name)?.target_container_name.as_deref();
    found.filter(|target| !target.is_empty())
}

/// A container of any list by its name.
pub fn definition<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    let spec = pod.spec.as_ref()?;
    if let Some(found) = super::spec::containers(spec).find(|c| c.name == name) {
        return Some(Cow::Borrowed(found));
    }
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    ephemeral.find(|e| e.name == name).map(|e| Cow::Owned(container(e)))
}

fn container(e: &EphemeralContainer) -> Container {
    Container {
        name: e.name.clone(),
        args: e.args.clone(),
        command: e.command.clone(),
        env: e.env.clone(),
        env_from: e.env_from.clone(),
        image: e.image.clone(),
        image_pull_policy: e.image_pull_policy.clone(),
        security_context: e.security_context.clone(),
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path.clone(),
        termination_message_policy: e.termination_message_policy.clone(),
        tty: e.tty,
        volume_devices: e.volume_devices.clone(),
        volume_mounts: e.volume_mounts.clone(),
        working_dir: e.working_dir.clone(),
        ..Container::default()
    }
}
