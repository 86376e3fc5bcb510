//! Pods that this node can never run as their security context says: refused before anything is made. Pure.
//!
//! Order, reasons and words of the kubelet (K8s pkg/kubelet/sysctl, pkg/security/apparmor, pkg/kubelet/lifecycle).

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements, SELinuxOptions};

use super::apparmor;
use crate::pod::refusal::Refusal;
use crate::pod::spec::containers_of;
use crate::pod::sysctls;

/// Facts of the node that decide.
#[derive(Clone, Copy, Debug)]
pub struct Abilities<'a> {
    /// Sysctls beyond the safe ones that the administrator allows, as patterns.
    pub unsafe_sysctls: &'a [String],
    pub apparmor: apparmor::Support,
    /// The kernel enforces or logs SELinux labels, which this build cannot set.
    pub selinux: bool,
    /// False where they cannot be enforced and a pod that has one must not run.
    pub memory_limits: bool,
    /// Whether pods can have users of their own; if not, why.
    pub user_namespaces: Result<(), &'a str>,
}

/// Whether the kernel has SELinux switched on.
pub fn has_selinux() -> bool {
    std::path::Path::new("/sys/fs/selinux/enforce").exists()
}

/// Why `pod` cannot run here, if so.
pub fn refusal(pod: &Pod, node: &Abilities<'_>) -> Option<Refusal> {
    let refusal = |reason: &str, message| Refusal { reason: reason.to_owned(), message };
    sysctls::forbidden(pod, node.unsafe_sysctls)
        .map(|message| refusal("SysctlForbidden", message))
        .or_else(|| apparmor::refusal(pod, node.apparmor).map(|message| refusal("AppArmor", message)))
        .or_else(|| {
            let path = selinux_label(pod).filter(|_| node.selinux)?;
            Some(refusal(
                "PodFeatureUnsupported",
                format!("{path} is not supported by this node: its kernel has SELinux"),
            ))
        })
        .or_else(|| {
            let why = own_users(pod, node.user_namespaces)?;
            Some(refusal(
                "PodFeatureUnsupported",
                format!("spec.hostUsers: false is not supported by this node: {why}"),
            ))
        })
        .or_else(|| {
            let unlimited = !node.memory_limits && has_memory_limit(pod);
            unlimited.then(|| refusal("MemoryLimitNotEnforceable", NO_MEMORY_CONTROLLER.to_owned()))
        })
}

/// Why the pod cannot have users of its own, if it wants them. A static pod has not passed the API's validation, which
/// refuses them beside the node's namespaces.
fn own_users<'a>(pod: &Pod, node: Result<(), &'a str>) -> Option<&'a str> {
    let spec = pod.spec.as_ref().filter(|spec| spec.host_users == Some(false))?;
    let hosts = [spec.host_network, spec.host_pid, spec.host_ipc];
    if hosts.contains(&Some(true)) {
        return Some("hostNetwork, hostPID and hostIPC need the node's users");
    }
    node.err()
}

/// Where the pod asks for an SELinux label, if it does.
fn selinux_label(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let asks = |options: Option<&SELinuxOptions>| options.is_some_and(|options| *options != SELinuxOptions::default());
    if asks(spec.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref())) {
        return Some("spec.securityContext.seLinuxOptions".to_owned());
    }
    containers_of(pod)
        .find(|c| asks(c.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref())))
        .map(|c| format!("securityContext.seLinuxOptions of container {}", c.name))
}

/// Says what is missing and how to have it.
pub const NO_MEMORY_CONTROLLER: &str = "the kernel's memory controller is off, so memory limits are not enforced: \
    add cgroup_enable=memory to the kernel's command line";

pub fn has_memory_limit(pod: &Pod) -> bool {
    let limited = |resources: Option<&ResourceRequirements>| {
        resources.and_then(|r| r.limits.as_ref()).is_some_and(|limits| limits.contains_key("memory"))
    };
    limited(pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()))
        || containers_of(pod).any(|container| limited(container.resources.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reasons() {
        let mut node = Abilities {
            unsafe_sysctls: &[],
            apparmor: apparmor::Support::Off,
            selinux: false,
            memory_limits: false,
            user_namespaces: Ok(()),
        };
        let reason = |node: &Abilities<'_>, context| {
            let spec = json!({"securityContext": context, "containers": [{"name": "c"}]});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            refusal(&pod, node).map(|refusal| refusal.reason)
        };
        assert_eq!(reason(&node, json!({})), None);
        assert_eq!(reason(&node, json!({"sysctls": [{"name": "vm.x", "value": "1"}]})), Some("SysctlForbidden".into()));
        assert_eq!(reason(&node, json!({"appArmorProfile": {"type": "RuntimeDefault"}})), Some("AppArmor".into()));
        let labelled = json!({"seLinuxOptions": {"level": "s0:c0,c1"}});
        assert_eq!(reason(&node, labelled.clone()), None, "a label without meaning");
        node.selinux = true;
        assert_eq!(reason(&node, labelled), Some("PodFeatureUnsupported".into()));
        assert_eq!(reason(&node, json!({"seLinuxOptions": {}})), None);
        let limited = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Mi"}}}]}});
        let limited: Pod = serde_json::from_value(limited).unwrap();
        assert_eq!(refusal(&limited, &node).map(|r| r.reason), Some("MemoryLimitNotEnforceable".into()));
        node.memory_limits = true;
        assert_eq!(refusal(&limited, &node), None);
        let own_users = |extra: &str| {
            let mut pod = json!({"spec": {"hostUsers": false, "containers": []}});
            pod["spec"][extra] = true.into();
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        let why = |pod: &Pod, node: &Abilities<'_>| refusal(pod, node).map(|r| r.message).unwrap_or_default();
        assert_eq!(refusal(&own_users("setHostnameAsFQDN"), &node), None);
        assert!(why(&own_users("hostPID"), &node).ends_with("hostPID and hostIPC need the node's users"));
        node.user_namespaces = Err("no ids");
        let expected = "spec.hostUsers: false is not supported by this node: no ids";
        assert_eq!(why(&own_users("setHostnameAsFQDN"), &node), expected);
    }
}
