use serde_json::{Value, json};

use super::*;
use crate::resource::Resource;
use crate::resource::strategy::Strategy as _;

fn autoscaler(spec: Value) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let mut spec = spec;
    set_default(&mut spec, "scaleTargetRef", target);
    set_default(&mut spec, "maxReplicas", 5);
    json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec})
}

fn defaulted(spec: Value) -> Value {
    let mut object = autoscaler(spec);
    default(&mut object);
    let once = object.clone();
    default(&mut object);
    assert_eq!(object, once);
    object
}

fn complaints(spec: Value) -> Vec<String> {
    let all = validate::create(&defaulted(spec));
    all.iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

fn v1() -> std::sync::Arc<Resource> {
    V1.resource()
}

#[test]
fn what_is_left_open_is_filled_in() {
    let spec = defaulted(json!({}))["spec"].clone();
    assert_eq!(spec["minReplicas"], 1);
    assert_eq!(spec["metrics"], json!([metric::cpu_utilization(json!(80))]));
    assert_eq!(spec.get("behavior"), None);
    let behavior = json!({"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
        "tolerance": "0.05"}});
    let behavior = defaulted(json!({"behavior": behavior}))["spec"]["behavior"].clone();
    assert_eq!(
        behavior["scaleUp"],
        json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]})
    );
    assert_eq!(
        behavior["scaleDown"],
        json!({"selectPolicy": "Max", "tolerance": "50m",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]})
    );
    let metrics = json!([{"type": "Pods", "pods": {"metric": {"name": "m"},
        "target": {"type": "AverageValue", "averageValue": "1000m"}}}]);
    assert_eq!(defaulted(json!({"metrics": metrics}))["spec"]["metrics"][0]["pods"]["target"]["averageValue"], "1");
}

#[test]
fn amounts_may_be_numbers_and_are_amounts() {
    let metric = |value: Value| {
        json!([{"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "AverageValue", "averageValue": value}}}])
    };
    let check = AUTOSCALER.check.unwrap();
    let taken = check(&autoscaler(json!({"metrics": metric(json!(5)), "behavior": {"scaleUp": {"tolerance": 0.5}}})));
    let taken = taken.unwrap();
    assert_eq!(taken.unknown, [""; 0]);
    assert_eq!(taken.value["spec"]["metrics"], metric(json!("5")));
    assert_eq!(taken.value["spec"]["behavior"]["scaleUp"]["tolerance"], "0.5");
    for wrong in [json!("x"), json!([]), json!(true)] {
        assert!(check(&autoscaler(json!({"metrics": metric(wrong.clone())}))).is_err(), "{wrong}");
    }
    assert!(check(&autoscaler(json!({"behavior": []}))).is_err());
    assert!(check(&json!({"spec": 1, "status": []})).is_err());
}

#[test]
fn replicas_and_targets_are_within_reason() {
    assert_eq!(complaints(json!({})), [""; 0]);
    assert_eq!(
        complaints(
            json!({"minReplicas": 0, "maxReplicas": -1, "scaleTargetRef": {"kind": "a/b", "apiVersion": "a/b/c"}})
        ),
        [
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
            "spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
            "spec.scaleTargetRef.kind: Invalid value: \"a/b\": may not contain '/'",
            "spec.scaleTargetRef.name: Required value",
            "spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero \
             replicas",
        ]
    );
    let target = |kind: &str| json!({"scaleTargetRef": {"kind": kind, "name": "x", "apiVersion": "v1"}});
    assert_eq!(complaints(target("ReplicationController")), [""; 0]);
    let wrong = "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group";
    assert_eq!(complaints(target("Deployment")), [wrong]);
    // Stored values may stay.
    let old = defaulted(target("Deployment"));
    assert_eq!(validate::update(&old, &old), []);
    let status = json!({"status": {"currentReplicas": -1, "desiredReplicas": 2}});
    assert_eq!(validate::status(&status, &Value::Null).len(), 1);
}

#[test]
fn a_metric_has_one_source_with_one_target() {
    let resource = |target: Value| json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
    let both = resource(json!({"type": "Utilization", "averageUtilization": 0, "averageValue": "0"}));
    let metrics = json!([
        both,
        {"type": "Pods", "resource": {"name": "", "target": {"type": "x"}}},
        {"type": "Odd"},
        {"type": "External", "external": {"metric": {"name": "m"},
            "target": {"type": "Value", "value": "1", "averageValue": "1"}}},
        {"type": "ContainerResource", "containerResource": {"name": "bogus", "container": "C",
            "target": {"type": "Utilization", "averageUtilization": 1}}},
    ]);
    assert_eq!(
        complaints(json!({"metrics": metrics})),
        [
            "spec.metrics[0].resource.target.averageValue: Invalid value: \"0\": must be positive",
            "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
            "spec.metrics[0].resource.target.averageValue: Forbidden: may not set both a target raw value and a target \
             utilization",
            "spec.metrics[1].resource.name: Required value: must specify a resource name",
            "spec.metrics[1].resource.target.type: Invalid value: \"x\": must be either Utilization, Value, or \
             AverageValue",
            "spec.metrics[1].resource.target.averageUtilization: Required value: must set either a target raw value or a \
             target utilization",
            "spec.metrics[1].pods: Required value: must populate information for the given metric source",
            "spec.metrics[2].type: Unsupported value: \"Odd\": supported values: \"ContainerResource\", \"External\", \
             \"Object\", \"Pods\", \"Resource\"",
            "spec.metrics[2].type: Unsupported value: \"Odd\": supported values: \"ContainerResource\", \"External\", \
             \"Object\", \"Pods\", \"Resource\"",
            "spec.metrics[3].external.target.value: Forbidden: may not set both a target value for metric and a per-pod \
             target",
            "spec.metrics[4].containerResource.name: Invalid value: \"bogus\": must be a standard resource type or fully \
             qualified",
            "spec.metrics[4].containerResource.name: Invalid value: \"bogus\": must be a standard resource for containers",
            "spec.metrics[4].containerResource.container: Invalid value: \"C\": a lowercase RFC 1123 label must consist \
             of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. \
             'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ]
    );
}

#[test]
fn rules_of_a_behavior_are_within_bounds() {
    let behavior = json!({
        "scaleUp": {"stabilizationWindowSeconds": -1, "selectPolicy": "Odd", "tolerance": "-1",
            "policies": [{"type": "Odd", "value": 0, "periodSeconds": 1801}]},
        "scaleDown": {"stabilizationWindowSeconds": 3601, "policies": []},
    });
    let told = complaints(json!({"behavior": behavior}));
    let path = "spec.behavior.scale";
    assert_eq!(
        told,
        [
            format!("{path}Up.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero"),
            format!(
                "{path}Up.selectPolicy: Unsupported value: \"Odd\": supported values: \"Disabled\", \"Max\", \"Min\""
            ),
            format!("{path}Up.policies[0].type: Unsupported value: \"Odd\": supported values: \"Percent\", \"Pods\""),
            format!("{path}Up.policies[0].value: Invalid value: 0: must be greater than zero"),
            format!("{path}Up.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800"),
            format!("{path}Up.tolerance: Invalid value: \"-1\": must be greater than or equal to 0"),
            format!("{path}Down.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600"),
            format!("{path}Down.policies: Required value: must specify at least one Policy"),
        ]
    );
}

/// An object with all fields of the newer version.
fn rich() -> Value {
    let condition = json!({"type": "AbleToScale", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let reference = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    let metric = json!({"name": "m", "selector": {"matchLabels": {"a": "b"}}});
    let mut object = defaulted(json!({
        "behavior": {"scaleUp": {"tolerance": "0.2", "selectPolicy": "Min"}},
        "metrics": [
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 50}}},
            {"type": "Pods", "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "7"}}},
            {"type": "Object", "object": {"metric": metric, "describedObject": reference,
                "target": {"type": "Value", "value": "3"}}},
            {"type": "External", "external": {"metric": {"name": "e"}, "target": {"type": "AverageValue", "averageValue": "9"}}},
            metric::cpu_utilization(json!(60)),
        ],
    }));
    object.set("status", json!({"currentReplicas": 2, "desiredReplicas": 3, "conditions": [condition], "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 70, "averageValue": "7m"}}}]}));
    object
}

#[test]
fn the_older_version_says_the_same_in_annotations() {
    let stored = rich();
    let mut served = stored.clone();
    v1().to_served(&mut served);
    assert_eq!(served["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(served["status"]["currentCPUUtilizationPercentage"], 70);
    let annotation = |name: &str| -> Value {
        serde_json::from_str(served["metadata"]["annotations"][name].as_str().unwrap()).unwrap()
    };
    let metrics = annotation("autoscaling.alpha.kubernetes.io/metrics");
    assert_eq!(metrics[0], json!({"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}));
    assert_eq!(metrics[3]["object"]["target"]["kind"], "Service");
    assert_eq!(metrics.as_array().map(Vec::len), Some(5));
    assert_eq!(annotation("autoscaling.alpha.kubernetes.io/conditions")[0]["type"], "AbleToScale");
    let behavior = annotation("autoscaling.alpha.kubernetes.io/behavior");
    assert_eq!(
        (&behavior["ScaleUp"]["SelectPolicy"], &behavior["ScaleDown"]["Tolerance"]),
        (&json!("Min"), &Value::Null)
    );
    let fields: Vec<&String> = served["spec"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["maxReplicas", "minReplicas", "scaleTargetRef", "targetCPUUtilizationPercentage"]);
    // It matches its own type, unchanged.
    let checked = V1.check.unwrap()(&served).unwrap();
    assert_eq!(checked.unknown, [""; 0]);
    let mut again = checked.value;
    for field in ["kind", "apiVersion"] {
        apimachinery::json::remove(&mut again, field);
    }
    v1().to_stored(&mut again);
    default(&mut again);
    assert_eq!(again, stored);
}

#[test]
fn annotations_of_strangers_count_as_none_where_they_cannot_be_read() {
    let of = |name: &str, value: &str| {
        let mut object = autoscaler(json!({"targetCPUUtilizationPercentage": 50}));
        let name = format!("autoscaling.alpha.kubernetes.io/{name}");
        object.set_at(&["metadata", "annotations", &name], value.into());
        v1().to_stored(&mut object);
        object
    };
    let plain = json!([metric::cpu_utilization(json!(50))]);
    for wrong in [
        "",
        "1",
        "[1]",
        "{}",
        "[{\"type\":1}]",
        "[{\"type\":\"Pods\",\"pods\":[]}]",
        "[[[[",
        "null",
        "[{\"type\":\"Resource\",\"resource\":{\"name\":\"cpu\",\"targetAverageValue\":\"x\"}}]",
    ] {
        let object = of("metrics", wrong);
        assert_eq!(object["spec"]["metrics"], plain, "{wrong}");
        assert_eq!(object["metadata"], json!({"name": "a", "namespace": "n"}));
        assert_eq!(of("behavior", wrong)["spec"].get("behavior"), None, "{wrong}");
        let measured = of("current-metrics", wrong).get("status").cloned().unwrap_or_default();
        assert!(measured.is_null() || wrong.contains("target"), "{wrong}: {measured}");
    }
    let lower = of("behavior", "{\"scaleup\":{\"selectpolicy\":\"Max\",\"Tolerance\":\"0.1\"},\"ScaleDown\":null}");
    assert_eq!(lower["spec"]["behavior"], json!({"scaleUp": {"selectPolicy": "Max", "tolerance": "100m"}}));
    // Part of an object, as a patch or an apply has it, gains nothing.
    for mut part in [json!({"metadata": {"name": "a"}}), json!([]), json!({"spec": 1, "metadata": []}), Value::Null] {
        let given = part.clone();
        v1().to_stored(&mut part);
        assert_eq!(part, given);
        v1().to_served(&mut part);
        assert_eq!(part, given);
    }
}

#[test]
fn a_row_shows_what_is_and_what_is_wanted() {
    let mut object = rich();
    object.set_at(&["metadata", "creationTimestamp"], "2026-01-01T00:00:00Z".into());
    let row = KIND.row(&object, "2026-01-01T00:01:00Z".parse().unwrap());
    let first = "memory: 7m/1Gi, cpu: <unknown>/50% + 4 more...";
    assert_eq!(json!(row), json!(["a", "Deployment/d", first, "1", 5, 2, "60s"]));
    let wanted =
        |metric: Value| KIND.row(&defaulted(json!({"metrics": [metric]})), jiff::Timestamp::UNIX_EPOCH)[2].clone();
    assert_eq!(wanted(metric::cpu_utilization(json!(60))), "cpu: <unknown>/60%");
    let metric = |kind: &str, field: &str, target: Value| json!({"type": kind, field: {"target": target}});
    assert_eq!(wanted(metric("Object", "object", json!({"averageValue": "2"}))), "<unknown>/2 (avg)");
    assert_eq!(wanted(metric("External", "external", json!({"value": "2"}))), "<unknown>/2");
    assert_eq!(wanted(json!({"type": "Odd"})), "<unknown type>");
}
