//! Where a pod of a DaemonSet belongs (K8s pkg/controller/daemon/daemon_controller.go `NodeShouldRunDaemonPod`).

use apimachinery::json::text;
use serde_json::Value;

use crate::placement;
use crate::workloads::node::Node;

/// Whether a pod belongs on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// The node must have a pod.
    Runs,
    /// An existing pod stays: the taint excludes only new ones.
    Stays,
    Not,
}

/// Whether a pod of this spec belongs on the node.
pub(super) fn fit(spec: &Value, node: &Node) -> Fit {
    let named = text(spec, "nodeName");
    if !(named.is_empty() || named == node.name()) || !placement::selected(spec, node.name(), &node.labels) {
        return Fit::Not;
    }
    let keeps_off = |effects: &[&str]| {
        let mut taints = node.taints();
        taints.any(|taint| effects.contains(&text(taint, "effect")) && !placement::tolerated(spec, taint))
    };
    if keeps_off(&["NoExecute"]) {
        Fit::Not
    } else if keeps_off(&["NoSchedule"]) {
        Fit::Stays
    } else {
        Fit::Runs
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workloads::templated::DaemonSet;

    fn node(taints: &Value) -> Node {
        use crate::workloads::store::Cached as _;
        let object = json!({"metadata": {"name": "a", "labels": {"disk": "ssd"}}, "spec": {"taints": taints}});
        let mut node: Node = serde_json::from_value(object).unwrap();
        node.seen(None, crate::workloads::now::Now::default());
        node
    }

    fn fits(spec: &Value, taints: &Value) -> Fit {
        let set = json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": spec}}});
        let set: DaemonSet = serde_json::from_value(set).unwrap();
        fit(&set.on_nodes(), &node(taints))
    }

    #[test]
    fn a_pod_belongs_where_its_selector_its_affinity_and_the_taints_let_it() {
        let any = json!({"containers": []});
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        let affinity = |key: &str| {
            let terms = json!([{"matchExpressions": [{"key": key, "operator": "Exists"}]}]);
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            json!({"containers": [], "affinity": {"nodeAffinity": required}})
        };
        for (spec, taints, wanted) in [
            (any.clone(), json!([]), Fit::Runs),
            (json!({"containers": [], "nodeSelector": {"disk": "ssd"}}), json!([]), Fit::Runs),
            (json!({"containers": [], "nodeSelector": {"disk": "hdd"}}), json!([]), Fit::Not),
            (json!({"containers": [], "nodeName": "b"}), json!([]), Fit::Not),
            (affinity("disk"), json!([]), Fit::Runs),
            (affinity("gpu"), json!([]), Fit::Not),
            (any.clone(), taint("own", "NoSchedule"), Fit::Stays),
            (any.clone(), taint("own", "NoExecute"), Fit::Not),
            (any.clone(), taint("own", "PreferNoSchedule"), Fit::Runs),
            (any.clone(), taint("node.kubernetes.io/unschedulable", "NoSchedule"), Fit::Runs),
            (any.clone(), taint("node.kubernetes.io/unreachable", "NoExecute"), Fit::Runs),
            (any, taint("node.kubernetes.io/network-unavailable", "NoSchedule"), Fit::Stays),
            (
                json!({"containers": [], "hostNetwork": true}),
                taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
                Fit::Runs,
            ),
            (
                json!({"containers": [], "tolerations": [{"key": "own", "operator": "Exists"}]}),
                taint("own", "NoExecute"),
                Fit::Runs,
            ),
        ] {
            assert_eq!(fits(&spec, &taints), wanted, "{spec} {taints}");
        }
    }
}
