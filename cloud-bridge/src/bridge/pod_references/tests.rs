//! What pods and volumes name.

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
    let found: Vec<_> = references("ns", "web", &spec).into_iter().map(|k| format!("{}/{}", k.kind, k.name)).collect();
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
fn g27_every_reference_that_a_static_pod_could_have_is_seen() {
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
    let found: Vec<_> = found.into_iter().map(|key| format!("{} {}/{}", key.kind, key.namespace, key.name)).collect();
    assert_eq!(found, ["CSIDriver /d", "Secret vault/publish", "Secret vault/stage"]);
    for bound in [json!({"namespace": "ns", "name": "other"}), json!({"namespace": "x", "name": "data"}), json!(null)] {
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
