//! The node's own object.

use edge_protocol::json::SetField;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use sampan_log::printable::printable;
use serde_json::{Map, Value, json};

use super::event::node_warning;
use super::failure::Failure;
use super::overrides::KubeletEndpoint;
use super::{Reports, labels, news};
use crate::bridge::requests::{Patch, code};
use crate::bridge::sites::lan_addresses;
use crate::bridge::well_known::{BRIDGED_LABEL, LAN_ADDRESSES, PEER_ADDRESS, RULES_ANNOTATION, SESSION_ANNOTATION};

/// Only the bridge and administrators may write annotations of this domain.
const DOMAIN: &str = "sampan.dev";
const SUBDOMAINS: &str = ".sampan.dev";

/// Role in the ROLES column of kubectl. A node may not set its own role, so the bridge sets it.
const ROLE_LABEL: &str = "node-role.kubernetes.io/edge";

impl Reports {
    /// Registers the node, or updates its object, and writes where its neighbours reach it.
    pub(super) async fn write_node(&self, node: &Value) -> Result<(), Failure> {
        self.write_object(node).await?;
        self.write_place(&node["status"]).await?;
        self.write_rules_place().await
    }

    /// Writes in the bridge's own name: a node must not decide where the tokens of clients are sent.
    async fn write_rules_place(&self) -> Result<(), Failure> {
        let Some(place) = self.overrides.rules_place.as_deref().filter(|_| self.replicated) else { return Ok(()) };
        if !self.rules_said.load(Ordering::Relaxed) {
            let patch = json!({"metadata": {"annotations": {RULES_ANNOTATION: place}}});
            self.own.patch(&format!("/api/v1/nodes/{}", self.node.name), Patch::Merge, &patch).await?;
            self.rules_said.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes the addresses of the node on its LAN, as the bridge sees them, or removes them. A node may do neither
    /// itself.
    async fn write_place(&self, status: &Value) -> Result<(), Failure> {
        let peer = self.lan.get();
        let place = peer.map(|peer| (lan_addresses(status), peer.to_string()));
        let before = self.place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if before == place {
            return Ok(());
        }
        let (addresses, peer) = place.clone().unzip();
        let patch = json!({"metadata": {"annotations": {LAN_ADDRESSES: addresses, PEER_ADDRESS: peer}}});
        self.own.patch(&format!("/api/v1/nodes/{}", self.node.name), Patch::Merge, &patch).await?;
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
        Ok(())
    }

    async fn write_object(&self, node: &Value) -> Result<(), Failure> {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        if name != self.node.name {
            return Err(Failure::Refused(format!("node {} reports a node object named {name:?}", self.node.name)));
        }
        // Without a version the object looks as the join created it, and the next report would complete it again.
        if node["status"]["nodeInfo"]["kubeletVersion"].as_str().is_none_or(str::is_empty) {
            return Err(Failure::Refused("a node has to say its version (status.nodeInfo.kubeletVersion)".to_owned()));
        }
        let now = Timestamp::now();
        let mut wanted = wanted(node, self.overrides.kubelet, now)?;
        // A single bridge needs no fencing number, which saves one write for each node when a fleet reconnects.
        if self.replicated {
            wanted.metadata.set_at(&["annotations", SESSION_ANNOTATION], self.session.to_string().into());
        }
        *self.newest_node() = Some(node.to_string().into_boxed_str());
        let path = format!("/api/v1/nodes/{name}");
        let known = *self.metadata() == Some(hash(&wanted.metadata));
        if !known {
            // The answer also shows whether the node exists: one request for the usual registration, two for the first.
            let patch = json!({"metadata": wanted.metadata});
            let found = self.requests.patch_for::<Value>(&path, Patch::Merge, &patch).await;
            if let Ok(object) = &found {
                self.saw_place(object);
            }
            match found {
                Err(error) if code(&error) == Some(404) => return self.register(&wanted).await,
                Err(error) => return Err(error.into()),
                Ok(object) => {
                    let bare = is_bare(&object);
                    if bare {
                        self.complete(&object, &wanted).await?;
                    } else {
                        self.tell_of_taints(&object, &wanted);
                    }
                    if let Some(patch) = labels::forgetting(&object, wanted.configured.as_deref()) {
                        self.own.patch(&path, Patch::Merge, &patch).await?;
                    }
                    if !bare && news::is_known(&object["status"], &wanted.status, now) {
                        self.registered(&wanted).await;
                        return Ok(());
                    }
                }
            }
            self.registered(&wanted).await;
        }
        match self.requests.patch(&format!("{path}/status"), Patch::Strategic, &json!({"status": wanted.status})).await
        {
            Err(error) if code(&error) == Some(404) => self.register(&wanted).await,
            other => Ok(other.map(drop)?),
        }
    }

    async fn register(&self, wanted: &Wanted) -> Result<(), Failure> {
        if !self.overrides.may_register {
            return Err(Failure::Refused(format!("the object of node {} was deleted", self.node.name)));
        }
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": wanted.metadata,
            "spec": wanted.spec,
            "status": without_directives(&wanted.status),
        });
        object.set_at(&["metadata", "name"], self.node.name.as_str().into());
        match self.requests.create("/api/v1/nodes", &object).await {
            // A join or an earlier report has created it meanwhile: the next attempt updates it.
            Err(error) if code(&error) == Some(409) => return Err(Failure::Changed),
            other => drop(other?),
        }
        self.registered(wanted).await;
        let notes = json!({labels::CONFIGURED_LABELS: wanted.configured});
        let role = json!({"metadata": {"labels": {ROLE_LABEL: ""}, "annotations": notes}});
        if let Err(error) = self.own.patch(&format!("/api/v1/nodes/{}", self.node.name), Patch::Merge, &role).await {
            log::warn!("node {}: its role label was not set: {error}", self.node.name);
        }
        Ok(())
    }

    /// Notes that the API has the metadata, and reports omitted labels once for each connection.
    async fn registered(&self, wanted: &Wanted) {
        *self.metadata() = Some(hash(&wanted.metadata));
        if wanted.problems.is_empty() {
            return;
        }
        let said = format!("left out of the labels of this Node: {}", wanted.problems.join("; "));
        log::warn!("node {}: {}", self.node.name, printable(&said));
        let event = node_warning(&self.node.name, "InvalidNodeLabels", &said, Timestamp::now());
        if let Err(failure) = self.write_event(&event).await {
            log::warn!("node {}: an event was lost: {failure:?}", self.node.name);
        }
    }

    /// Logs taints that are not written: a node may not change its own taints (NodeRestriction), so those of its
    /// configuration are written only when it registers.
    fn tell_of_taints(&self, object: &Value, wanted: &Wanted) {
        let missing = labels::missing_taints(object, &wanted.spec["taints"]);
        if !missing.is_empty() {
            log::info!(
                "node {name}: it is registered already, so these taints of its configuration are not written: {missing}; \
                 kubectl taint node {name} sets them",
                name = self.node.name,
                missing = printable(&missing.join(", "))
            );
        }
    }

    /// Adds what a node may not change later to an object that the join has created.
    async fn complete(&self, object: &Value, wanted: &Wanted) -> Result<(), Failure> {
        let mut taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let same = |a: &Value, b: &Value| a["key"] == b["key"] && a["effect"] == b["effect"];
        for taint in wanted.spec["taints"].as_array().into_iter().flatten() {
            if !taints.iter().any(|held| same(held, taint)) {
                taints.push(taint.clone());
            }
        }
        // The resource version makes the patch fail if an administrator changes the taints meanwhile.
        let version = &object["metadata"]["resourceVersion"];
        let metadata = json!({"labels": {ROLE_LABEL: ""}, "resourceVersion": version});
        let mut patch = json!({"metadata": metadata});
        if !taints.is_empty() {
            patch.set("spec", json!({ "taints": taints }));
        }
        match self.own.patch(&format!("/api/v1/nodes/{}", self.node.name), Patch::Merge, &patch).await {
            Err(error) if code(&error) == Some(409) => Err(Failure::Changed),
            other => Ok(other.map(drop)?),
        }
    }

    /// Notes the place of the node that its object names.
    fn saw_place(&self, object: &Value) {
        let said = |name| object["metadata"]["annotations"][name].as_str().map(str::to_owned);
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = said(LAN_ADDRESSES).zip(said(PEER_ADDRESS));
        self.rules_said.store(said(RULES_ANNOTATION) == self.overrides.rules_place, Ordering::Relaxed);
    }

    fn metadata(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.metadata.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hash for comparisons within this process.
fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Whether the node has never reported. An API server writes empty strings for missing fields.
fn is_bare(object: &Value) -> bool {
    object["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default().is_empty()
}

#[derive(Debug, PartialEq)]
struct Wanted {
    /// Labels and annotations.
    metadata: Value,
    /// Problems of labels that are omitted.
    problems: Vec<String>,
    /// The value of [`labels::CONFIGURED_LABELS`].
    configured: Option<String>,
    /// Taints, written only into a new object: a node may not change its own later.
    spec: Value,
    status: Value,
}

fn wanted(node: &Value, kubelet: Option<KubeletEndpoint>, now: Timestamp) -> Result<Wanted, Failure> {
    let mut labels = strings(&node["metadata"]["labels"]);
    // The bridge sets it at registration; an administrator may remove it.
    labels.remove(ROLE_LABEL);
    let (mut labels, problems) = labels::allowed(labels);
    let configured = labels::configured(&labels);
    labels.insert(BRIDGED_LABEL.to_owned(), "true".to_owned());
    let annotations = strings(&node["metadata"]["annotations"]);
    // Annotations of this domain decide whether the node may connect, when its pods are evicted, and which bridge has
    // it.
    let ours =
        |name: &&String| name.split('/').next().is_some_and(|domain| domain == DOMAIN || domain.ends_with(SUBDOMAINS));
    if let Some(forbidden) = annotations.keys().find(ours) {
        return Err(Failure::Refused(format!("a node may not set its own annotation {forbidden}")));
    }
    let metadata = json!({"labels": labels, "annotations": annotations});
    let mut status: Map<String, Value> = node["status"].as_object().cloned().unwrap_or_default();
    // The node's clock may be wrong by years; the controller that reads this compares with its own.
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        condition.set("lastHeartbeatTime", now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    }
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
    Ok(Wanted { metadata, problems, configured, spec, status: Value::Object(status) })
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
        assert_eq!(wanted(&role, None, now()).unwrap().metadata["labels"], json!({BRIDGED_LABEL: "true"}));
        for label in ["node-restriction.kubernetes.io/x", "node-role.kubernetes.io/master", "a.k8s.io/x"] {
            let node = json!({"metadata": {"name": "n", "labels": {label: "", "site": "roof"}}});
            let wanted = wanted(&node, None, now()).unwrap();
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
            assert!(matches!(wanted(&node, None, now()), Err(Failure::Refused(text)) if text.contains(name)), "{name}");
        }
        let node = json!({"metadata": {"name": "n", "annotations": {"example.com/sampan.dev": "x"}}});
        assert!(wanted(&node, None, now()).is_ok());
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
                let wanted = wanted(&node, endpoint, now()).unwrap();
                without_directives(&wanted.status);
            }
        }
    }

    #[test]
    fn heartbeats_get_the_bridges_time_and_addresses_are_replaced() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k"}]}, "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}, {"type": "Hostname", "address": "n"}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1970-01-01T00:00:00Z"}]}});
        let plain = wanted(&node, None, now()).unwrap();
        assert_eq!(plain.status["conditions"][0]["lastHeartbeatTime"], "2026-03-01T10:00:00Z");
        assert_eq!(plain.status["addresses"][0], json!({"$patch": "replace"}));
        assert_eq!(without_directives(&plain.status)["addresses"], node["status"]["addresses"]);
        assert_eq!(plain.spec["taints"], node["spec"]["taints"]);

        let kind = AddressType::InternalIp;
        let endpoint = KubeletEndpoint { kind, address: "192.0.2.5".parse().unwrap(), port: 10361 };
        let served = without_directives(&wanted(&node, Some(endpoint), now()).unwrap().status);
        assert_eq!(
            served["addresses"],
            json!([{"type": "InternalIP", "address": "192.0.2.5"}, {"type": "Hostname", "address": "n"}])
        );
        assert_eq!(served["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10361);
        let beside = KubeletEndpoint { kind: AddressType::InternalDns, ..endpoint };
        let beside = without_directives(&wanted(&node, Some(beside), now()).unwrap().status);
        let all = json!([{"type": "InternalDNS", "address": "192.0.2.5"}, {"type": "InternalIP", "address": "10.0.0.9"},
            {"type": "Hostname", "address": "n"}]);
        assert_eq!(beside["addresses"], all, "the node keeps its own address");
        assert_eq!(served["declaredFeatures"], json!(["ExtendWebSocketsToKubelet"]));
        assert_eq!(plain.status["declaredFeatures"], json!([]));
        let other =
            json!({"metadata": {"name": "n"}, "status": {"declaredFeatures": ["A", "ExtendWebSocketsToKubelet", "Z"]}});
        assert_eq!(wanted(&other, None, now()).unwrap().status["declaredFeatures"], json!(["A", "Z"]));
        let both = wanted(&other, Some(endpoint), now()).unwrap().status;
        assert_eq!(both["declaredFeatures"], json!(["A", "ExtendWebSocketsToKubelet", "Z"]));
    }
}
