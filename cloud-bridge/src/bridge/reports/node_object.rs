//! The object of a node in the API, as the node reports it and within what a node may say. Pure.

use std::collections::BTreeMap;

use apimachinery::meta::rfc3339;
use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::labels;
use super::overrides::KubeletEndpoint;
use crate::bridge::well_known::BRIDGED_LABEL;

/// Only the bridge and administrators may write annotations of this domain.
const DOMAIN: &str = "sampan.dev";
const SUBDOMAINS: &str = ".sampan.dev";

/// Role in the ROLES column of kubectl. A node may not set its own role, so the bridge sets it.
pub(super) const ROLE_LABEL: &str = "node-role.kubernetes.io/edge";

/// Without this annotation the attach-detach controller of a cluster attaches nothing to the node. A kubelet sets it by
/// default (K8s pkg/kubelet/kubelet_node_status.go, `initialNode`).
const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// Parts of the object, checked.
#[derive(Debug, PartialEq)]
pub(super) struct Wanted {
    /// Labels and annotations.
    pub(super) metadata: Value,
    /// Problems of labels that are omitted.
    pub(super) problems: Vec<String>,
    /// The value of [`labels::CONFIGURED_LABELS`].
    pub(super) configured: Option<String>,
    /// Taints, written only into a new object: a node may not change its own later.
    pub(super) spec: Value,
    pub(super) status: Value,
}

impl Wanted {
    /// `node`: the reported object; `kubelet`: where its kubelet API is served.
    pub(super) fn of(node: &Value, kubelet: Option<KubeletEndpoint>, now: Timestamp) -> Result<Self, Failure> {
        let mut labels = strings(&node["metadata"]["labels"]);
        // The bridge sets it at registration; an administrator may remove it.
        labels.remove(ROLE_LABEL);
        let (mut labels, problems) = labels::allowed(labels);
        let configured = labels::configured(&labels);
        labels.insert(BRIDGED_LABEL.to_owned(), "true".to_owned());
        let mut annotations = strings(&node["metadata"]["annotations"]);
        // Annotations of this domain decide whether the node may connect, when its pods are evicted, and which bridge has
        // it.
        let ours = |name: &&String| {
            name.split('/').next().is_some_and(|domain| domain == DOMAIN || domain.ends_with(SUBDOMAINS))
        };
        if let Some(forbidden) = annotations.keys().find(ours) {
            return Err(Failure::Refused(format!("a node may not set its own annotation {forbidden}")));
        }
        annotations.insert(ATTACHED_BY_CONTROLLER.to_owned(), "true".to_owned());
        let metadata = json!({"labels": labels, "annotations": annotations});
        let mut status: Map<String, Value> = node["status"].as_object().cloned().unwrap_or_default();
        // The node's clock may be wrong by years; the controller that reads this compares with its own.
        for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            condition.set("lastHeartbeatTime", rfc3339(now).into());
        }
        // The node listens nowhere, and a port that it names could be another node's at a bridge.
        status.remove("daemonEndpoints");
        // The attach-detach controller writes it, and believes it at its start (K8s pkg/controller/volume/attachdetach,
        // `populateActualStateOfWorld`): a node could keep any volume from the others.
        status.remove("volumesAttached");
        if let Some(endpoint) = kubelet {
            let addresses = status.entry("addresses").or_insert_with(|| json!([]));
            if let Some(addresses) = addresses.as_array_mut() {
                let kind = endpoint.kind.as_str();
                addresses.retain(|address| address["type"] != kind);
                addresses.insert(0, json!({"type": kind, "address": endpoint.address.to_string()}));
            }
            status.insert("daemonEndpoints".to_owned(), json!({"kubeletEndpoint": {"Port": endpoint.port}}));
        }
        declare(&mut status, kubelet.is_some());
        // Addresses merge by type, so a removed one would stay.
        if let Some(Value::Array(addresses)) = status.get_mut("addresses") {
            addresses.insert(0, json!({"$patch": "replace"}));
        }
        let spec = json!({"taints": node["spec"]["taints"].as_array().cloned().unwrap_or_default()});
        Ok(Self { metadata, problems, configured, spec, status: Value::Object(status) })
    }

    /// A new object of this name.
    pub(super) fn object(&self, name: &str) -> Value {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": self.metadata,
            "spec": self.spec,
            "status": without_directives(&self.status),
        });
        object.set_at(&["metadata", "name"], name.into());
        object
    }

    /// The patch that adds what a node may not change later to an object that the join has created: the role, and taints.
    pub(super) fn completion(&self, object: &Value) -> Value {
        let mut taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let same = |a: &Value, b: &Value| a["key"] == b["key"] && a["effect"] == b["effect"];
        for taint in self.spec["taints"].as_array().into_iter().flatten() {
            if !taints.iter().any(|held| same(held, taint)) {
                taints.push(taint.clone());
            }
        }
        // The resource version makes the patch fail if an administrator changes the taints meanwhile.
        let version = &object["metadata"]["resourceVersion"];
        let mut patch = json!({"metadata": {"labels": {ROLE_LABEL: ""}, "resourceVersion": version}});
        if !taints.is_empty() {
            patch.set("spec", json!({ "taints": taints }));
        }
        patch
    }
}

/// Whether the node has never reported. An API server writes empty strings for missing fields.
pub(super) fn is_bare(object: &Value) -> bool {
    object["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default().is_empty()
}

/// Declares that the kubelet API accepts WebSockets, if the bridge serves it: an API server then forwards those of its
/// clients (K8s pkg/registry/core/pod/rest/subresources.go). The list is sorted.
fn declare(status: &mut Map<String, Value>, served: bool) {
    const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";
    let features = status.get("declaredFeatures").and_then(Value::as_array);
    let mut features: Vec<Value> = features.into_iter().flatten().filter(|f| *f != WEBSOCKETS).cloned().collect();
    if served {
        features.push(WEBSOCKETS.into());
        features.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
    // Without the field the API would keep the old value.
    status.insert("declaredFeatures".to_owned(), features.into());
}

/// Removes patch directives, which a new object may not have.
fn without_directives(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(addresses) = status.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.retain(|address| address.get("$patch").is_none());
    }
    status
}

fn strings(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::reports::AddressType;

    fn now() -> Timestamp {
        "2026-03-01T10:00:00.5Z".parse().unwrap()
    }

    #[test]
    fn reserved_label_is_left_out_and_the_rest_written() {
        let role = json!({"metadata": {"name": "n", "labels": {ROLE_LABEL: ""}}});
        assert_eq!(Wanted::of(&role, None, now()).unwrap().metadata["labels"], json!({BRIDGED_LABEL: "true"}));
        for label in ["node-restriction.kubernetes.io/x", "node-role.kubernetes.io/master", "a.k8s.io/x"] {
            let node = json!({"metadata": {"name": "n", "labels": {label: "", "site": "roof"}}});
            let wanted = Wanted::of(&node, None, now()).unwrap();
            assert_eq!(wanted.metadata["labels"], json!({BRIDGED_LABEL: "true", "site": "roof"}));
            assert!(wanted.problems[0].contains(label), "{:?}", wanted.problems);
            assert_eq!(wanted.configured.as_deref(), Some("site"));
        }
    }

    #[test]
    fn g27_annotations_of_the_bridge_are_not_the_nodes_to_set() {
        for name in [
            "sampan.dev/revoked",
            "sampan.dev/certificates-from",
            "sampan.dev/autonomy",
            "sampan.dev/session",
            "a.sampan.dev/x",
        ] {
            let node = json!({"metadata": {"name": "n", "annotations": {name: "forever"}}});
            assert!(
                matches!(Wanted::of(&node, None, now()), Err(Failure::Refused(text)) if text.contains(name)),
                "{name}"
            );
        }
        let node = json!({"metadata": {"name": "n", "annotations": {"example.com/sampan.dev": "x"}}});
        let annotations = json!({"example.com/sampan.dev": "x", ATTACHED_BY_CONTROLLER: "true"});
        assert_eq!(Wanted::of(&node, None, now()).unwrap().metadata["annotations"], annotations);
    }

    #[test]
    fn controllers_attach_volumes_to_every_node() {
        for annotations in [Value::Null, json!({ATTACHED_BY_CONTROLLER: "false"})] {
            let node = json!({"metadata": {"name": "n", "annotations": annotations}});
            let wanted = Wanted::of(&node, None, now()).unwrap();
            assert_eq!(wanted.object("n")["metadata"]["annotations"], json!({ATTACHED_BY_CONTROLLER: "true"}));
        }
    }

    #[test]
    fn a_status_of_any_shape_is_no_end_of_anything() {
        for status in [
            json!(1),
            json!([]),
            json!({"conditions": ["x", 1, null, [], {}]}),
            json!({"conditions": 1}),
            json!({"addresses": 1, "declaredFeatures": {}}),
            json!({"addresses": [1, "x"]}),
        ] {
            let node = json!({"metadata": {"name": "n", "labels": [], "annotations": 1}, "spec": [], "status": status});
            for endpoint in
                [None, Some(KubeletEndpoint { kind: AddressType::default(), address: [192, 0, 2, 5].into(), port: 1 })]
            {
                let wanted = Wanted::of(&node, endpoint, now()).unwrap();
                without_directives(&wanted.status);
            }
        }
    }

    #[test]
    fn heartbeats_get_the_bridges_time_and_addresses_are_replaced() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k"}]}, "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}, {"type": "Hostname", "address": "n"}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1970-01-01T00:00:00Z"}]}});
        let plain = Wanted::of(&node, None, now()).unwrap();
        assert_eq!(plain.status["conditions"][0]["lastHeartbeatTime"], "2026-03-01T10:00:00Z");
        assert_eq!(plain.status["addresses"][0], json!({"$patch": "replace"}));
        assert_eq!(without_directives(&plain.status)["addresses"], node["status"]["addresses"]);
        assert_eq!(plain.spec["taints"], node["spec"]["taints"]);

        let kind = AddressType::InternalIp;
        let endpoint = KubeletEndpoint { kind, address: "192.0.2.5".parse().unwrap(), port: 10361 };
        let served = without_directives(&Wanted::of(&node, Some(endpoint), now()).unwrap().status);
        assert_eq!(
            served["addresses"],
            json!([{"type": "InternalIP", "address": "192.0.2.5"}, {"type": "Hostname", "address": "n"}])
        );
        assert_eq!(served["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10361);
        let beside = KubeletEndpoint { kind: AddressType::InternalDns, ..endpoint };
        let beside = without_directives(&Wanted::of(&node, Some(beside), now()).unwrap().status);
        let all = json!([{"type": "InternalDNS", "address": "192.0.2.5"}, {"type": "InternalIP", "address": "10.0.0.9"},
            {"type": "Hostname", "address": "n"}]);
        assert_eq!(beside["addresses"], all, "the node keeps its own address");
        assert_eq!(served["declaredFeatures"], json!(["ExtendWebSocketsToKubelet"]));
        assert_eq!(plain.status["declaredFeatures"], json!([]));
        let other =
            json!({"metadata": {"name": "n"}, "status": {"declaredFeatures": ["A", "ExtendWebSocketsToKubelet", "Z"]}});
        assert_eq!(Wanted::of(&other, None, now()).unwrap().status["declaredFeatures"], json!(["A", "Z"]));
        let both = Wanted::of(&other, Some(endpoint), now()).unwrap().status;
        assert_eq!(both["declaredFeatures"], json!(["A", "ExtendWebSocketsToKubelet", "Z"]));
    }

    #[test]
    fn node_cannot_name_a_kubelet_port() {
        let endpoints = json!({"kubeletEndpoint": {"Port": 10_361}});
        let node = json!({"metadata": {"name": "n"}, "status": {"addresses": [], "daemonEndpoints": endpoints}});
        assert_eq!(Wanted::of(&node, None, now()).unwrap().status.get("daemonEndpoints"), None);
        let endpoint = KubeletEndpoint { kind: AddressType::default(), address: [192, 0, 2, 5].into(), port: 10_360 };
        let served = Wanted::of(&node, Some(endpoint), now()).unwrap().status;
        assert_eq!(served["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10_360);
    }

    #[test]
    fn node_reports_what_it_uses_and_not_what_is_attached() {
        let volumes = json!({"volumesInUse": ["v"], "volumesAttached": [{"name": "v", "devicePath": ""}]});
        let wanted = Wanted::of(&json!({"metadata": {"name": "n"}, "status": volumes}), None, now()).unwrap();
        assert_eq!(wanted.status["volumesInUse"], json!(["v"]));
        assert_eq!(wanted.object("n")["status"].get("volumesAttached"), None);
    }

    #[test]
    fn completion_adds_taints_to_those_of_an_administrator() {
        let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [taint("a", "own"), taint("b", "own")]}});
        let wanted = Wanted::of(&node, None, now()).unwrap();
        let joined = json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": [taint("a", "admin")]}});
        let patch = wanted.completion(&joined);
        assert_eq!(patch["spec"]["taints"], json!([taint("a", "admin"), taint("b", "own")]));
        assert_eq!(patch["metadata"], json!({"labels": {ROLE_LABEL: ""}, "resourceVersion": "7"}));
        let plain = Wanted::of(&json!({"metadata": {"name": "n"}}), None, now()).unwrap();
        assert_eq!(plain.completion(&json!({"metadata": {}})).get("spec"), None, "nothing to write");
    }
}
