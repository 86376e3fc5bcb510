//! Where a pod of a DaemonSet belongs, and what it tolerates there (K8s pkg/controller/daemon/daemon_controller.go
//! `NodeShouldRunDaemonPod`, util/daemonset_util.go `AddOrUpdateDaemonPodTolerations`).

use apimachinery::json::text;
use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use serde_json::Value;

use crate::placement;
use crate::workloads::node::Node;

/// What all pods of DaemonSets tolerate; the last one only those in the node's network.
const TOLERATED: [(&str, &str); 7] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ("node.kubernetes.io/network-unavailable", "NoSchedule"),
];

/// Whether a pod belongs on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// One is to be there.
    Runs,
    /// One that is there stays: a taint keeps only new ones off.
    Stays,
    Not,
}

/// The spec by which nodes are chosen.
pub(super) fn spec_on_nodes(spec: &DaemonSetSpec) -> Value {
    let mut pod = spec.template.spec.clone().unwrap_or_default();
    tolerate(&mut pod);
    serde_json::to_value(pod).unwrap_or_default()
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

/// Adds what all pods of DaemonSets tolerate.
pub(super) fn tolerate(spec: &mut PodSpec) {
    let all = if spec.host_network == Some(true) { TOLERATED.len() } else { TOLERATED.len() - 1 };
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().take(all) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let same = |one: &&mut Toleration| {
            one.key == toleration.key
                && one.operator == toleration.operator
                && one.effect == toleration.effect
                && one.value.as_deref().unwrap_or_default().is_empty()
        };
        match tolerations.iter_mut().find(same) {
            Some(one) => *one = toleration,
            None => tolerations.push(toleration),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(taints: &Value) -> Node {
        use crate::workloads::store::Cached as _;
        let object = json!({"metadata": {"name": "a", "labels": {"disk": "ssd"}}, "spec": {"taints": taints}});
        let mut node: Node = serde_json::from_value(object).unwrap();
        node.seen(None, crate::workloads::now::Now::default());
        node
    }

    fn fits(spec: &Value, taints: &Value) -> Fit {
        let spec = json!({"selector": {}, "template": {"spec": spec}});
        fit(&spec_on_nodes(&serde_json::from_value(spec).unwrap()), &node(taints))
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

    #[test]
    fn an_own_toleration_of_the_same_taint_loses_its_end() {
        let key = "node.kubernetes.io/unreachable";
        let own = json!([{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]);
        let mut spec: PodSpec = serde_json::from_value(json!({"containers": [], "tolerations": own})).unwrap();
        tolerate(&mut spec);
        let all = spec.tolerations.unwrap();
        assert_eq!(all.len(), 6);
        assert!(all.iter().all(|one| one.toleration_seconds.is_none()));
    }
}
