//! Defaults and refusals of ReplicaSets, with the paths and messages of Kubernetes.

use serde_json::{Value, json};

use super::{KIND, validate};
use crate::resource::strategy::Strategy;

/// A ReplicaSet with its defaults, changed by a JSON merge patch.
fn filled(change: Value) -> Value {
    let mut value = json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {
        "selector": {"matchLabels": {"app": "r"}},
        "template": {"metadata": {"labels": {"app": "r"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    json_patch::merge(&mut value, &change);
    KIND.default(&mut value);
    value
}

fn complaints(change: Value) -> Vec<String> {
    validate::create(&filled(change)).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

#[test]
fn defaults_are_those_of_kubernetes_and_idempotent() {
    let mut set =
        filled(json!({"spec": {"minReadySeconds": 0}, "status": {"readyReplicas": 0, "terminatingReplicas": 0}}));
    assert_eq!((&set["spec"]["replicas"], &set["spec"]["minReadySeconds"]), (&json!(1), &Value::Null));
    assert_eq!(set["status"], json!({"replicas": 0, "terminatingReplicas": 0}));
    assert_eq!(set["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    let once = set.clone();
    KIND.default(&mut set);
    assert_eq!(once, set);
    assert_eq!(validate::create(&once), []);
    KIND.prepare_create(&mut set);
    assert_eq!(set["status"], json!({"replicas": 0}));
}

#[test]
fn a_template_loses_what_no_feature_reads() {
    let with = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "i:1", "lifecycle": {"stopSignal": "SIGUSR1"}}]}}}});
    let (mut new, mut updated) = (filled(with.clone()), filled(with));
    KIND.prepare_create(&mut new);
    KIND.prepare_update(&mut updated, &filled(json!({"status": {"replicas": 3}})));
    for set in [&new, &updated] {
        assert!(set["spec"]["template"]["spec"]["containers"][0].get("lifecycle").is_none(), "{set}");
    }
    assert_eq!(updated["status"]["replicas"], 3);
}

#[test]
fn what_cannot_work_is_refused() {
    assert_eq!(
        complaints(json!({"spec": {"replicas": -1, "minReadySeconds": -1}})),
        [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
    let missing = complaints(json!({"spec": {"selector": null}}));
    assert_eq!(missing[0], "spec.selector: Required value");
    assert_eq!(
        complaints(json!({"spec": {"selector": {"matchLabels": {"tier": "x"}}}})),
        ["spec.template.metadata.labels: Invalid value: {\"app\":\"r\"}: `selector` does not match template `labels`"]
    );
    assert_eq!(
        complaints(json!({"spec": {"template": {"spec": {"restartPolicy": "OnFailure", "activeDeadlineSeconds": 1}}}})),
        [
            "spec.template.spec.restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Always\"",
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
        ]
    );
}

#[test]
fn a_selector_stays() {
    let old = filled(json!({}));
    let new = filled(json!({"spec": {"selector": {"matchLabels": {"tier": "x"}},
        "template": {"metadata": {"labels": {"tier": "x"}}}}}));
    let refused: Vec<String> = validate::update(&new, &old).into_iter().map(|e| e.field).collect();
    assert_eq!(refused, ["spec.selector"]);
    assert_eq!(validate::update(&filled(json!({"spec": {"replicas": 4}})), &old), []);
}

#[test]
fn counts_of_a_status_fit_together() {
    let fields = |status: Value| -> Vec<String> {
        validate::status(&json!({ "status": status }), &Value::Null).into_iter().map(|e| e.field).collect()
    };
    assert!(
        fields(json!({"replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1}))
            .is_empty()
    );
    assert_eq!(
        fields(json!({"replicas": 1, "fullyLabeledReplicas": 2, "readyReplicas": 0, "availableReplicas": 1,
            "terminatingReplicas": -1, "observedGeneration": -1})),
        [
            "status.observedGeneration",
            "status.terminatingReplicas",
            "status.fullyLabeledReplicas",
            "status.availableReplicas",
        ]
    );
}
