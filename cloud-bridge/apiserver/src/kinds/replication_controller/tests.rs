//! Defaults and refusals of ReplicationControllers, with the paths and messages of Kubernetes.

use serde_json::{Value, json};

use super::{KIND, validate};
use crate::resource::strategy::Strategy;

/// A ReplicationController with its defaults, changed by a JSON merge patch.
fn filled(change: Value) -> Value {
    let mut value = json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {
        "template": {"metadata": {"labels": {"app": "r"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    json_patch::merge(&mut value, &change);
    KIND.default(&mut value);
    value
}

fn complaints(change: Value) -> Vec<String> {
    validate::create(&filled(change)).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

#[test]
fn labels_of_the_template_stand_in_for_what_is_not_said() {
    let mut controller = filled(json!({}));
    assert_eq!(controller["spec"]["selector"], json!({"app": "r"}));
    assert_eq!((&controller["metadata"]["labels"], &controller["spec"]["replicas"]), (&json!({"app": "r"}), &json!(1)));
    let once = controller.clone();
    KIND.default(&mut controller);
    assert_eq!(once, controller);
    assert_eq!(validate::create(&once), []);
    let said = filled(json!({"metadata": {"labels": {"own": "1"}}, "spec": {"replicas": 0, "selector": {"app": "x"}}}));
    assert_eq!((&said["metadata"]["labels"], &said["spec"]["selector"]), (&json!({"own": "1"}), &json!({"app": "x"})));
    assert_eq!(said["spec"]["replicas"], 0);
}

#[test]
fn what_cannot_work_is_refused() {
    assert_eq!(
        complaints(json!({"spec": {"template": null}})),
        ["spec.selector: Required value", "spec.template: Required value"]
    );
    assert_eq!(
        complaints(json!({"spec": {"selector": {"app": "x"}, "replicas": -1}})),
        [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"r\"}: `selector` does not match template `labels`",
        ]
    );
    assert_eq!(
        complaints(json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "activeDeadlineSeconds": 1}}}})),
        [
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is \
             not Supported",
        ]
    );
}

#[test]
fn it_is_selected_by_its_replicas() {
    assert_eq!(KIND.field(&json!({}), "status.replicas").unwrap(), "0");
    assert_eq!(KIND.field(&json!({"status": {"replicas": 3}}), "status.replicas").unwrap(), "3");
    assert!(KIND.field(&json!({}), "spec.replicas").is_none());
}

#[test]
fn counts_of_a_status_fit_together() {
    let fields = |status: Value| -> Vec<String> {
        validate::status(&json!({ "status": status }), &Value::Null).into_iter().map(|e| e.field).collect()
    };
    assert!(fields(json!({"replicas": 1, "readyReplicas": 1})).is_empty());
    assert_eq!(
        fields(json!({"replicas": 1, "fullyLabeledReplicas": 2, "availableReplicas": 1})),
        ["status.fullyLabeledReplicas", "status.availableReplicas"]
    );
}
