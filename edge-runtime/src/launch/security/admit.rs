//! Pods that this node can never run as their security context says: refused before anything is made. Pure.
//!
//! Order, reasons and words of the kubelet (K8s pkg/kubelet/sysctl, pkg/security/apparmor, pkg/kubelet/lifecycle).

use k8s_openapi::api::core::v1::Pod;

use super::{apparmor, sysctl};
use crate::pod::reconcile::Refusal;

/// What of it depends on the node.
#[derive(Clone, Copy, Debug)]
pub struct Abilities<'a> {
    /// Sysctls beyond the safe ones that the administrator allows, as patterns.
    pub unsafe_sysctls: &'a [String],
    pub apparmor: apparmor::Support,
}

/// Why `pod` cannot run here, if so.
pub fn refusal(pod: &Pod, node: &Abilities<'_>) -> Option<Refusal> {
    let refusal = |reason: &str, message| Refusal { reason: reason.to_owned(), message };
    sysctl::forbidden(pod, node.unsafe_sysctls)
        .map(|message| refusal("SysctlForbidden", message))
        .or_else(|| apparmor::refusal(pod, node.apparmor).map(|message| refusal("AppArmor", message)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reasons() {
        let node = Abilities { unsafe_sysctls: &[], apparmor: apparmor::Support::Off };
        let reason = |context| {
            let spec = json!({"securityContext": context, "containers": [{"name": "c"}]});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            refusal(&pod, &node).map(|refusal| refusal.reason)
        };
        assert_eq!(reason(json!({})), None);
        assert_eq!(reason(json!({"sysctls": [{"name": "vm.x", "value": "1"}]})), Some("SysctlForbidden".into()));
        assert_eq!(reason(json!({"appArmorProfile": {"type": "RuntimeDefault"}})), Some("AppArmor".into()));
    }
}
