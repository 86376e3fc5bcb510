//! Tolerations of the pods of DaemonSets, and the parts of their template that select nodes (K8s
//! pkg/controller/daemon/util/daemonset_util.go `AddOrUpdateDaemonPodTolerations`). Pure.

use k8s_openapi::api::core::v1::{Affinity, PodSpec, Toleration};

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

/// The part of a DaemonSet's pod spec by which nodes are chosen, with all that its pods tolerate, as JSON.
pub(super) fn spec_on_nodes(spec: Option<&PodSpec>) -> String {
    let mut chosen = spec.map_or_else(PodSpec::default, |spec| PodSpec {
        node_name: spec.node_name.clone(),
        node_selector: spec.node_selector.clone(),
        affinity: spec
            .affinity
            .as_ref()
            .map(|affinity| Affinity { node_affinity: affinity.node_affinity.clone(), ..Affinity::default() }),
        host_network: spec.host_network,
        tolerations: spec.tolerations.clone(),
        ..PodSpec::default()
    });
    tolerate(&mut chosen);
    serde_json::to_value(chosen).unwrap_or_default().to_string()
}

/// Adds what all pods of DaemonSets tolerate.
fn tolerate(spec: &mut PodSpec) {
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
    use serde_json::{Value, json};

    use super::*;

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

    #[test]
    fn only_what_chooses_nodes_is_kept_of_a_spec() {
        let affinity = json!({
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
        });
        let spec = json!({
            "containers": [{"name": "c"}], "volumes": [{"name": "v"}], "nodeName": "n", "nodeSelector": {"a": "b"},
            "affinity": affinity, "hostNetwork": true,
        });
        let kept = spec_on_nodes(Some(&serde_json::from_value(spec.clone()).unwrap()));
        let kept: Value = serde_json::from_str(&kept).unwrap();
        for field in ["nodeName", "nodeSelector", "hostNetwork"] {
            assert_eq!(kept[field], spec[field]);
        }
        assert_eq!(kept["affinity"]["nodeAffinity"], affinity["nodeAffinity"]);
        assert!(kept["affinity"]["podAffinity"].is_null() && kept["volumes"].is_null(), "{kept}");
        assert_eq!(kept["containers"], json!([]));
        assert_eq!(kept["tolerations"].as_array().unwrap().len(), TOLERATED.len());
    }
}
