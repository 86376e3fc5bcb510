//! Defaults and refusals of Deployments, with the paths and messages of Kubernetes.

use serde_json::{Value, json};

use super::{KIND, validate};
use crate::resource::strategy::Strategy;

fn deployment() -> Value {
    json!({"metadata": {"name": "d", "namespace": "n"}, "spec": {"selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
}

/// A Deployment with its defaults, changed by a JSON merge patch.
fn filled(change: Value) -> Value {
    let mut value = deployment();
    json_patch::merge(&mut value, &change);
    KIND.default(&mut value);
    value
}

fn complaints(change: Value) -> Vec<String> {
    validate::create(&filled(change)).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

#[test]
fn defaults_are_those_of_kubernetes_and_idempotent() {
    let once = filled(json!({"spec": {"paused": false, "template": {"spec": {"hostNetwork": true, "containers": [
        {"name": "c", "image": "i:1", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1000m"}}}]}}}}));
    let spec = &once["spec"];
    assert_eq!((&spec["replicas"], &spec["paused"]), (&json!(1), &Value::Null));
    assert_eq!((&spec["revisionHistoryLimit"], &spec["progressDeadlineSeconds"]), (&json!(10), &json!(600)));
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    assert_eq!(spec["strategy"], strategy);
    let pod = &spec["template"]["spec"];
    assert_eq!((&pod["restartPolicy"], &pod["terminationGracePeriodSeconds"]), (&json!("Always"), &json!(30)));
    // The pod of the template gets these.
    assert!(pod.get("enableServiceLinks").is_none());
    let container = &pod["containers"][0];
    assert_eq!(container["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert_eq!(container["resources"], json!({"limits": {"cpu": "1"}}));
    let mut twice = once.clone();
    KIND.default(&mut twice);
    assert_eq!(once, twice);
    assert_eq!(validate::create(&once), []);
    let recreate = filled(json!({"spec": {"strategy": {"type": "Recreate"}}}));
    assert_eq!(recreate["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn the_template_is_judged_as_a_pod_at_its_own_place() {
    let none: [&str; 0] = [];
    assert_eq!(complaints(json!({})), none);
    let of = |spec: Value| complaints(json!({"spec": {"template": {"spec": spec}}}));
    assert_eq!(of(json!({"containers": []})), ["spec.template.spec.containers: Required value"]);
    assert_eq!(
        of(json!({"restartPolicy": "Never", "activeDeadlineSeconds": 5})),
        [
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
        ]
    );
    assert_eq!(
        complaints(json!({"spec": {"template": {"metadata": {"labels": {"app": "other"}}}}})),
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match template `labels`"
        ]
    );
    let ports = json!([{"containerPort": 80, "hostPort": 81}]);
    let wrong = of(json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": ports}]}));
    assert!(wrong[0].starts_with("spec.template.spec.containers[0].ports[0].hostPort: Invalid value: 81"), "{wrong:?}");
}

#[test]
fn selectors_must_select() {
    let of = |selector: Value| complaints(json!({"spec": {"selector": selector}}));
    let missing = of(Value::Null);
    assert_eq!(missing[0], "spec.selector: Required value");
    assert!(missing[1].starts_with("spec.template.metadata.labels: "), "{missing:?}");
    let wrong = of(json!({"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}));
    assert_eq!(
        wrong[0],
        "spec.selector.matchExpressions[0].operator: Invalid value: \"Gt\": not a valid selector operator"
    );
    assert!(wrong[1].ends_with("invalid label selector"), "{wrong:?}");
    let old = filled(json!({}));
    let mut new = filled(json!({"spec": {"selector": {"matchLabels": {"tier": "x"}},
        "template": {"metadata": {"labels": {"tier": "x"}}}}}));
    let refused: Vec<String> = validate::update(&new, &old).iter().map(|e| e.field.clone()).collect();
    assert_eq!(refused, ["spec.selector"]);
    new.clone_from(&old);
    assert_eq!(validate::update(&new, &old), []);
}

#[test]
fn a_rolling_update_must_be_able_to_roll() {
    let of = |rolling: Value| complaints(json!({"spec": {"strategy": {"rollingUpdate": rolling}}}));
    let none: [&str; 0] = [];
    assert_eq!(of(json!({"maxSurge": 0, "maxUnavailable": "100%"})), none);
    let path = "spec.strategy.rollingUpdate";
    assert_eq!(
        of(json!({"maxSurge": "0%", "maxUnavailable": 0})),
        [format!("{path}.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0")]
    );
    assert_eq!(
        of(json!({"maxUnavailable": "101%"})),
        [format!("{path}.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%")]
    );
    assert!(of(json!({"maxSurge": "a%"}))[0].contains("a valid percent string must be a numeric string followed by"));
    assert!(of(json!({"maxSurge": -1}))[0].contains("must be greater than or equal to 0"));
    let recreate = complaints(json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}}));
    assert_eq!(recreate, [format!("{path}: Forbidden: may not be specified when strategy `type` is 'Recreate'")]);
    let other = complaints(json!({"spec": {"strategy": {"type": "Other"}}}));
    assert!(other[0].starts_with("spec.strategy: Unsupported value: {\"Type\":\"Other\""), "{other:?}");
    let soon = complaints(json!({"spec": {"minReadySeconds": 9, "progressDeadlineSeconds": 9}}));
    assert_eq!(soon, ["spec.progressDeadlineSeconds: Invalid value: 9: must be greater than minReadySeconds"]);
}

#[test]
fn counts_of_a_status_fit_together() {
    let old = json!({"status": {"collisionCount": 2}});
    let fields = |status: Value| -> Vec<String> {
        validate::status(&json!({ "status": status }), &old).into_iter().map(|error| error.field).collect()
    };
    assert!(fields(json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 1, "collisionCount": 2})).is_empty());
    let wrong = json!({"replicas": 1, "readyReplicas": 2, "availableReplicas": -1, "collisionCount": 1});
    assert_eq!(fields(wrong), ["status.availableReplicas", "status.readyReplicas", "status.collisionCount"]);
}
