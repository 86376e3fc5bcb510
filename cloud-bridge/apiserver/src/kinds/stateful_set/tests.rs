//! Defaults and refusals of StatefulSets, with the paths and messages of Kubernetes.

use serde_json::{Value, json};

use super::{KIND, claims, validate};
use crate::resource::strategy::Strategy;

/// A StatefulSet with its defaults, changed by a JSON merge patch.
fn filled(change: Value) -> Value {
    let mut value = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {
        "serviceName": "s", "selector": {"matchLabels": {"app": "s"}},
        "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    json_patch::merge(&mut value, &change);
    KIND.default(&mut value);
    value
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

fn complaints(change: Value) -> Vec<String> {
    validate::create(&filled(change)).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

#[test]
fn defaults_are_those_of_kubernetes_and_idempotent() {
    let mut set = filled(json!({"spec": {"volumeClaimTemplates": [claim("data")]}}));
    let spec = &set["spec"];
    assert_eq!((&spec["podManagementPolicy"], &spec["replicas"]), (&json!("OrderedReady"), &json!(1)));
    assert_eq!(spec["updateStrategy"], json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
    let retained = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    assert_eq!((&spec["persistentVolumeClaimRetentionPolicy"], &spec["revisionHistoryLimit"]), (&retained, &json!(10)));
    let template = &spec["volumeClaimTemplates"][0];
    assert_eq!(
        (&template["spec"]["volumeMode"], &template["status"]),
        (&json!("Filesystem"), &json!({"phase": "Pending"}))
    );
    let once = set.clone();
    KIND.default(&mut set);
    assert_eq!(once, set);
    assert_eq!(validate::create(&once), []);
    // With an explicit type, missing fields get no defaults.
    let said = filled(json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}}));
    assert_eq!(said["spec"]["updateStrategy"], json!({"type": "RollingUpdate"}));
    let mut more = filled(json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}}));
    KIND.prepare_create(&mut more);
    assert_eq!(more["spec"]["updateStrategy"]["rollingUpdate"], json!({"partition": 0}));
    assert_eq!(more["status"], json!({"replicas": 0, "availableReplicas": 0}));
}

#[test]
fn templates_of_claims_are_claims_whatever_they_call_themselves() {
    let mut template = claim("data");
    json_patch::merge(&mut template, &json!({"apiVersion": "v1beta1", "kind": "Claim"}));
    let set = json!({"metadata": {}, "spec": {"volumeClaimTemplates": [template],
        "selector": {}, "template": {"spec": {"containers": []}}}});
    let checked = claims::check(&set).unwrap();
    let kept = &checked.value["spec"]["volumeClaimTemplates"][0];
    assert_eq!((&kept["apiVersion"], &kept["kind"]), (&json!("v1"), &json!("PersistentVolumeClaim")));
    assert!(checked.unknown.is_empty(), "{:?}", checked.unknown);
    let mut wrong = set;
    json_patch::merge(&mut wrong, &json!({"spec": {"volumeClaimTemplates": [{"kind": 1}]}}));
    assert!(claims::check(&wrong).is_err());
    assert_eq!(
        complaints(json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}})),
        [
            "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
            "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value",
        ]
    );
}

#[test]
fn pods_mount_their_claims() {
    let mounts = json!({"spec": {"template": {"spec": {"hostname": "Not.One", "containers": [
        {"name": "c", "image": "i:1", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}}}});
    let mut with = mounts.clone();
    json_patch::merge(&mut with, &json!({"spec": {"volumeClaimTemplates": [claim("data")]}}));
    let none: [&str; 0] = [];
    assert_eq!(complaints(with), none);
    assert_eq!(complaints(mounts), ["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\""]);
}

#[test]
fn what_cannot_work_is_refused() {
    assert_eq!(
        complaints(json!({"spec": {"podManagementPolicy": "Any", "replicas": -1, "minReadySeconds": -1,
            "ordinals": {"start": -1}, "serviceName": "A.b",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Keep"}}}))[..5],
        [
            "spec.podManagementPolicy: Invalid value: \"Any\": must be 'OrderedReady' or 'Parallel'",
            "spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: \"Keep\": supported values: \
             \"Retain\", \"Delete\"",
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
    assert!(
        complaints(json!({"spec": {"serviceName": "A.b"}}))[0].starts_with("spec.serviceName: Invalid value: \"A.b\"")
    );
    let strategy = |strategy: Value| complaints(json!({"spec": {"updateStrategy": strategy}}));
    assert_eq!(
        strategy(json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}})),
        ["spec.updateStrategy.rollingUpdate: Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: only allowed \
             for updateStrategy 'RollingUpdate'"]
    );
    assert_eq!(
        strategy(json!({"type": "Other"})),
        ["spec.updateStrategy: Invalid value: {\"Type\":\"Other\",\"RollingUpdate\":null}: must be 'RollingUpdate' \
             or 'OnDelete'"]
    );
    assert_eq!(
        strategy(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": -1}})),
        ["spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0"]
    );
    assert_eq!(complaints(json!({"spec": {"selector": null}}))[0], "spec.selector: Required value");
    assert_eq!(
        complaints(json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}})),
        ["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
    );
}

#[test]
fn most_of_it_stays() {
    let old = filled(json!({"spec": {"volumeClaimTemplates": [claim("data")]}}));
    let refused = |change: Value| -> Vec<String> {
        let mut new = old.clone();
        json_patch::merge(&mut new, &change);
        validate::update(&new, &old).into_iter().map(|e| e.field).collect()
    };
    let allowed = json!({"spec": {"replicas": 3, "minReadySeconds": 1, "ordinals": {"start": 2},
        "revisionHistoryLimit": 1, "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
        "updateStrategy": {"rollingUpdate": {"partition": 1}}, "template": {"metadata": {"labels": {"v": "2"}}}}});
    assert!(refused(allowed).is_empty());
    for change in [
        json!({"serviceName": "t"}),
        json!({"podManagementPolicy": "Parallel"}),
        json!({"volumeClaimTemplates": [claim("more")]}),
    ] {
        assert_eq!(refused(json!({ "spec": change })), ["spec"], "{change}");
    }
}

#[test]
fn counts_of_a_status_fit_together() {
    let told = |status: Value| -> Vec<String> {
        let errors = validate::status(&json!({ "status": status }), &json!({"status": {"collisionCount": 1}}));
        errors.into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    };
    assert!(told(json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "collisionCount": 1})).is_empty());
    assert_eq!(
        told(json!({"replicas": 2, "currentReplicas": 3, "availableReplicas": 1})),
        [
            "status.currentReplicas: Invalid value: 3: cannot be greater than status.replicas",
            "status.availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas",
            "status.collisionCount: Invalid value: 0: cannot be decremented",
        ]
    );
}

#[test]
fn a_size_in_parts_of_bytes_is_told() {
    let mut template = claim("data");
    json_patch::merge(&mut template, &json!({"spec": {"resources": {"requests": {"storage": "1500m"}}}}));
    let warned =
        (KIND.warnings)(&filled(json!({"spec": {"volumeClaimTemplates": [template], "revisionHistoryLimit": -1}})));
    assert!(warned[0].contains("volumeClaimTemplates[0].resources.requests[storage]: fractional byte value \"1500m\""));
    assert!(warned[1].starts_with("spec.revisionHistoryLimit: a negative value retains all"), "{warned:?}");
}
