//! Which labels a node may give itself: the rule of the API server's NodeRestriction admission. The embedded API applies
//! it, and the bridge before any API, because a cluster may lack it. Pure.

/// K8s `kubelet_labels.go`, kubeletLabels.
const OF_THE_KUBELET: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Whether a kubelet may set, change or take away this label of its own node.
pub fn may_set(label: &str) -> bool {
    let Some((prefix, _)) = label.split_once('/') else { return true };
    let within = |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    OF_THE_KUBELET.contains(&label)
        || within("kubelet.kubernetes.io")
        || within("node.kubernetes.io")
        || !(within("kubernetes.io") || within("k8s.io"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_kubernetes_are_not_the_nodes_to_set_but_for_some() {
        for label in [
            "node-restriction.kubernetes.io/x",
            "a.node-restriction.kubernetes.io/x",
            "node-role.kubernetes.io/master",
            "a.k8s.io/x",
            "kubernetes.io/x",
        ] {
            assert!(!may_set(label), "{label}");
        }
        for label in OF_THE_KUBELET {
            assert!(may_set(label), "{label}");
        }
        for label in ["node.kubernetes.io/x", "a.kubelet.kubernetes.io/x", "site", "example.com/site", "notk8s.io/x"] {
            assert!(may_set(label), "{label}");
        }
    }
}
