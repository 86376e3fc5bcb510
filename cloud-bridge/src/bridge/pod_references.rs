//! Which ConfigMaps, Secrets, claims, runtime class and CSIDrivers a pod names, and whose Services its environment shows. Pure.
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_is_found_and_nothing_else() {
        let spec = json!({
            "volumes": [
                {"name": "a", "configMap": {"name": "volume-map"}},
                {"name": "b", "secret": {"secretName": "volume-secret"}},
                {"name": "c", "projected": {"sources": [
                    {"configMap": {"name": "projected-map"}}, {"secret": {"name": "projected-secret"}},
                    {"downwardAPI": {}}, {"serviceAccountToken": {"path": "token"}}]}},
                {"name": "d", "emptyDir": {}},
                {"name": "e", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "f", "csi": {"driver": "vault.example.com", "nodePublishSecretRef": {"name": "csi-secret"}}},
                {"name": "g", "ephemeral": {"volumeClaimTemplate": {}}}
            ],
            "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "init-secret", "key": "k"}}}]}],
            "containers": [{
                "env": [{"name": "X", "value": "1"}, {"valueFrom": {"configMapKeyRef": {"name": "env-map"}}},
                        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "envFrom": [{"configMapRef": {"name": "from-map"}}, {"secretRef": {"name": "from-secret"}}]
            }],
            "ephemeralContainers": [{"envFrom": [{"configMapRef": {"name": "debug-map"}}]}],
            "imagePullSecrets": [{"name": "pull"}, {"name": ""}, {}],
            "runtimeClassName": "quick"
        });
        let found: Vec<_> =
            references("ns", "web", &spec).into_iter().map(|k| format!("{}/{}", k.kind, k.name)).collect();
        assert_eq!(
            found,
            [
                "CSIDriver/vault.example.com",
                "ConfigMap/debug-map",
                "ConfigMap/env-map",
                "ConfigMap/from-map",
                "ConfigMap/projected-map",
                "ConfigMap/volume-map",
                "PersistentVolumeClaim/data",
                "PersistentVolumeClaim/web-g",
                "RuntimeClass/quick",
                "Secret/csi-secret",
                "Secret/from-secret",
                "Secret/init-secret",
                "Secret/projected-secret",
                "Secret/pull",
                "Secret/volume-secret",
            ]
        );
    }

    #[test]
    fn labels_are_for_pods_that_ask_for_some() {
        let terms = |terms: Value| {
            json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        let asks = |spec: Value| node_labels("ns", "u1", &spec).map(|key| (key.kind, key.namespace, key.name));
        let key = Some(("NodeLabels".to_owned(), "ns".to_owned(), "u1".to_owned()));
        assert_eq!(asks(json!({"nodeSelector": {"a": "b"}})), key);
        assert_eq!(asks(terms(json!([{"matchFields": [{}]}, {"matchExpressions": [{"key": "a"}]}]))), key);
        let of_daemon_set = terms(json!([{"matchFields": [{"key": "metadata.name"}]}]));
        for spec in [json!({}), json!({"nodeSelector": {}}), json!({"nodeSelector": "x"}), of_daemon_set, Value::Null] {
            assert_eq!(asks(spec.clone()), None, "{spec}");
        }
    }

    #[test]
    fn g27_everything_in_the_api_that_a_static_pod_could_name_is_seen() {
        let container = |field: &str, value: Value| json!({"containers": [{"name": "c", field: value}]});
        let volume = |source: Value| json!({"volumes": [source]});
        let projected = |source: Value| volume(json!({"name": "v", "projected": {"sources": [source]}}));
        for spec in [
            json!({"serviceAccountName": "a"}),
            json!({"serviceAccount": "a"}),
            json!({"imagePullSecrets": [{"name": "s"}]}),
            json!({"resourceClaims": [{"name": "r"}]}),
            json!({"initContainers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}),
            json!({"ephemeralContainers": [{"envFrom": [{"configMapRef": {"name": "s"}}]}]}),
            container("env", json!([{"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])),
            container("env", json!([{"valueFrom": {"configMapKeyRef": {"name": "s", "key": "k"}}}])),
            volume(json!({"secret": {"secretName": "s"}})),
            volume(json!({"secret": {}})),
            volume(json!({"configMap": {"name": "m"}})),
            volume(json!({"persistentVolumeClaim": {"claimName": "c"}})),
            volume(json!({"ephemeral": {"volumeClaimTemplate": {}}})),
            volume(json!({"csi": {"driver": "d"}})),
            volume(json!({"azureFile": {"secretName": "s"}})),
            volume(json!({"iscsi": {"secretRef": {"name": "s"}}})),
            volume(json!({"somethingNew": {}})),
            projected(json!({"secret": {"name": "s"}})),
            projected(json!({"configMap": {"name": "s"}})),
            projected(json!({"serviceAccountToken": {"path": "t"}})),
            projected(json!({"clusterTrustBundle": {"path": "t"}})),
            projected(json!({"podCertificate": {}})),
        ] {
            assert!(names_objects(&spec).is_some(), "{spec}");
        }
        for spec in [
            Value::Null,
            json!([]),
            json!({"serviceAccountName": "", "runtimeClassName": "quick", "volumes": 1}),
            volume(json!({"name": "v", "hostPath": {"path": "/"}, "secret": null})),
            projected(json!({"downwardAPI": {"items": []}})),
            container("env", json!([{"name": "X", "value": "1"}])),
        ] {
            assert_eq!(names_objects(&spec), None, "{spec}");
        }
    }

    #[test]
    fn g27_volume_names_secrets_for_the_claim_it_is_bound_to() {
        let claim = Kind::Claim.key("ns", "data");
        let secret = |name: &str| json!({"namespace": "vault", "name": name});
        let body = |bound: Value| {
            let csi = json!({"driver": "d", "nodeStageSecretRef": secret("stage"), "nodePublishSecretRef": secret("publish"),
                "controllerPublishSecretRef": secret("controller"), "nodeExpandSecretRef": secret("expand")});
            json!({"volume": {"name": "pv", "spec": {"csi": csi, "claimRef": bound}}})
        };
        let found = volume_references(&claim, &body(json!({"namespace": "ns", "name": "data"})));
        let found: Vec<_> =
            found.into_iter().map(|key| format!("{} {}/{}", key.kind, key.namespace, key.name)).collect();
        assert_eq!(found, ["CSIDriver /d", "Secret vault/publish", "Secret vault/stage"]);
        for bound in
            [json!({"namespace": "ns", "name": "other"}), json!({"namespace": "x", "name": "data"}), json!(null)]
        {
            assert!(volume_references(&claim, &body(bound)).is_empty());
        }
        let bound = json!({"namespace": "ns", "name": "data"});
        assert!(volume_references(&Kind::Secret.key("ns", "data"), &body(bound.clone())).is_empty());
        for odd in [
            json!(1),
            json!({"driver": 1, "nodeStageSecretRef": {"name": "no namespace"}}),
            json!([]),
            json!({"nodePublishSecretRef": {"namespace": "vault", "name": "../../nodes"}}),
        ] {
            let body = json!({"volume": {"spec": {"csi": odd, "claimRef": bound}}});
            assert!(volume_references(&claim, &body).is_empty(), "{odd}");
        }
    }

    #[test]
    fn nonsense_names_nothing() {
        assert!(references("ns", "web", &Value::Null).is_empty());
        assert!(references("ns", "web", &json!({"volumes": "x", "containers": [3]})).is_empty());
    }
}
