//! Which ConfigMaps, Secrets, claims, runtime class and CSIDrivers a pod names, and whose Services its environment
//! shows. Pure.
//!
//! These are the fields that the API server's node authorizer reads, as far as a node here can use them: volumes
//! (projected ones too), environment of every kind of container, and pull secrets.

use std::collections::BTreeSet;

use edge_protocol::message::ObjectKey;
use serde_json::Value;

use super::requests::is_path_segment;
use super::told::groups::{ALL_SERVICES, API_NAMESPACE, API_SERVICE};
use super::told::kinds::Kind;

/// The labels of its node, if the pod selects by labels. A DaemonSet's pod selects by name.
pub(super) fn node_labels(namespace: &str, uid: &str, spec: &Value) -> Option<ObjectKey> {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let by_label = |term: &Value| items(&term["matchExpressions"]).next().is_some();
    let asks = spec["nodeSelector"].as_object().is_some_and(|selector| !selector.is_empty())
        || items(&required["nodeSelectorTerms"]).any(by_label);
    asks.then(|| Kind::NodeLabels.key(namespace, uid))
}

/// The Services that a pod's environment shows: those of its namespace unless it disables them, and the API's own (K8s
/// pkg/kubelet/kubelet_pods.go, `getServiceEnvVarMap`).
pub(super) fn service_links(namespace: &str, spec: &Value) -> BTreeSet<ObjectKey> {
    let mut keys = BTreeSet::from([Kind::ServiceLinks.key(API_NAMESPACE, API_SERVICE)]);
    if spec["enableServiceLinks"].as_bool().unwrap_or(true) {
        keys.insert(Kind::ServiceLinks.key(namespace, ALL_SERVICES));
    }
    keys
}

/// Every ConfigMap, Secret, claim, runtime class and CSIDriver that a pod of this name with this `spec` may need.
pub(super) fn references(namespace: &str, pod: &str, spec: &Value) -> BTreeSet<ObjectKey> {
    let mut keys = BTreeSet::new();
    let mut found = Found { namespace, keys: &mut keys };
    for volume in items(&spec["volumes"]) {
        found.config_map(&volume["configMap"]["name"]);
        found.secret(&volume["secret"]["secretName"]);
        found.add(Kind::Claim, &volume["persistentVolumeClaim"]["claimName"]);
        // The claim of a template: K8s staging/src/k8s.io/component-helpers/storage/ephemeral, `VolumeClaimName`.
        if let (true, Some(name)) = (volume["ephemeral"].is_object(), volume["name"].as_str()) {
            found.keys.insert(Kind::Claim.key(namespace, format!("{pod}-{name}")));
        }
        found.secret(&volume["csi"]["nodePublishSecretRef"]["name"]);
        for source in items(&volume["projected"]["sources"]) {
            found.config_map(&source["configMap"]["name"]);
            found.secret(&source["secret"]["name"]);
        }
    }
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(&spec[kind]) {
            for variable in items(&container["env"]) {
                found.config_map(&variable["valueFrom"]["configMapKeyRef"]["name"]);
                found.secret(&variable["valueFrom"]["secretKeyRef"]["name"]);
            }
            for source in items(&container["envFrom"]) {
                found.config_map(&source["configMapRef"]["name"]);
                found.secret(&source["secretRef"]["name"]);
            }
        }
    }
    for secret in items(&spec["imagePullSecrets"]) {
        found.secret(&secret["name"]);
    }
    let mut cluster = Found { namespace: "", keys: &mut keys };
    cluster.add(Kind::RuntimeClass, &spec["runtimeClassName"]);
    for volume in items(&spec["volumes"]) {
        cluster.add(Kind::CsiDriver, &volume["csi"]["driver"]);
    }
    keys
}

/// The CSI driver and the Secrets that the volume of a claim names; `body`: the claim with its volume, as nodes get it.
/// The Secrets are those that the node authorizer lets a node read because of a volume (K8s
/// plugin/pkg/auth/authorizer/node, `AddPV`), as far as nodes use them, and may be in any namespace.
pub(super) fn volume_references(claim: &ObjectKey, body: &Value) -> BTreeSet<ObjectKey> {
    let mut keys = BTreeSet::new();
    let (csi, bound) = (&body["volume"]["spec"]["csi"], &body["volume"]["spec"]["claimRef"]);
    // A volume that is bound to another claim gives no access.
    if !Kind::Claim.is(claim) || bound["namespace"] != *claim.namespace || bound["name"] != *claim.name {
        return keys;
    }
    Found { namespace: "", keys: &mut keys }.add(Kind::CsiDriver, &csi["driver"]);
    for reference in ["nodeStageSecretRef", "nodePublishSecretRef"] {
        let name = |field: &str| csi[reference][field].as_str().filter(|name| is_path_segment(name));
        keys.extend(name("namespace").zip(name("name")).map(|(namespace, name)| Kind::Secret.key(namespace, name)));
    }
    keys
}

/// The plural of a resource in the API that a pod with this `spec` needs, if any: a mirror pod must not name one (K8s
/// pkg/api/pod, `HasAPIObjectReference`). Unknown kinds of volumes count as such.
pub(super) fn names_objects(spec: &Value) -> Option<&'static str> {
    const ALONE: [&str; 6] = ["name", "emptyDir", "hostPath", "downwardAPI", "image", "nfs"];
    let named = |field: &str| spec[field].as_str().is_some_and(|text| !text.is_empty());
    if named("serviceAccountName") || named("serviceAccount") {
        return Some("serviceaccounts");
    }
    let mut named = references("", "", spec).into_iter().filter_map(|key| Kind::of(&key));
    if let Some(kind) = named.find(|kind| *kind != Kind::RuntimeClass) {
        return Some(kind.facts().plural);
    }
    if items(&spec["resourceClaims"]).next().is_some() {
        return Some("resourceclaims");
    }
    let fields = |value: &Value, field: &dyn Fn(&str, &Value) -> bool| {
        value.as_object().into_iter().flatten().all(|(name, value)| value.is_null() || field(name, value))
    };
    let only_downward = |source: &Value| fields(source, &|name, _| name == "downwardAPI");
    let harmless = |name: &str, value: &Value| match name {
        "projected" => items(&value["sources"]).all(only_downward),
        _ => ALONE.contains(&name),
    };
    let known = items(&spec["volumes"]).all(|volume| fields(volume, &harmless));
    (!known).then_some("objects of the API by its volumes")
}

struct Found<'a> {
    namespace: &'a str,
    keys: &'a mut BTreeSet<ObjectKey>,
}

impl Found<'_> {
    fn config_map(&mut self, name: &Value) {
        self.add(Kind::ConfigMap, name);
    }

    fn secret(&mut self, name: &Value) {
        self.add(Kind::Secret, name);
    }

    fn add(&mut self, kind: Kind, name: &Value) {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            self.keys.insert(kind.key(self.namespace, name));
        }
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests;
