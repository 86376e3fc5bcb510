//! Tests of `slim`, case by case.

use kube::api::DynamicObject;

use super::*;

fn pod(value: Value) -> SlimPod {
    serde_json::from_value(value).unwrap()
}

fn body(told: &Told) -> Value {
    serde_json::from_str(told.text().text()).unwrap()
}

fn sample() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u1", "resourceVersion": "5", "generation": 2,
                     "managedFields": [{"manager": "kubectl", "operation": "Update"}],
                     "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}},
        "spec": {"nodeName": "edge-1", "containers": [{"name": "c"}], "imagePullSecrets": [{"name": "s"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    })
}

#[test]
fn only_what_concerns_the_node_travels() {
    assert_eq!(pod(sample()).metadata.managed_fields, None, "they are most of a pod, and not read");
    let bound = pod(sample()).into_bound().unwrap();
    assert_eq!((bound.node.as_str(), bound.uid(), bound.generation), ("edge-1", "u1", 2));
    let refs: Vec<_> = bound.refs.iter().map(|key| format!("{} {}/{}", key.kind, key.namespace, key.name)).collect();
    assert_eq!(refs[1..], ["ServiceLinks default/kubernetes", "ServiceLinks ns/all"], "{refs:?}");
    assert_eq!(
        body(&bound.object)["metadata"],
        json!({"name": "web", "namespace": "ns", "uid": "u1", "generation": 2, "annotations": {"a": "b"}})
    );
    assert_eq!(body(&bound.object).get("status"), None);
    assert_eq!(bound.object.digest.digest.len(), 32);
}

/// Otherwise a node that may create mirror pods could read everything.
#[test]
fn g27_what_a_mirror_names_is_not_followed() {
    let mut mirror = sample();
    mirror["metadata"]["annotations"][MIRROR_ANNOTATION] = "h".into();
    mirror["spec"]["volumes"] = json!([{"secret": {"secretName": "s"}}, {"persistentVolumeClaim": {"claimName": "c"}}]);
    mirror["spec"]["runtimeClassName"] = "quick".into();
    let bound = pod(mirror).into_bound().unwrap();
    assert_eq!(bound.refs.iter().map(|key| key.kind.as_str()).collect::<Vec<_>>(), ["RuntimeClass"]);
    assert_eq!(bound.mirror_of.as_deref(), Some("h"));
}

#[test]
fn a_change_of_status_changes_no_digest_but_a_readiness_gate_does() {
    let digest = |value: Value| pod(value).into_bound().unwrap().object.digest.digest.clone();
    let mut changed = sample();
    changed["status"] = json!({"phase": "Failed", "conditions": [{"type": "x", "status": "True"}]});
    changed["metadata"]["resourceVersion"] = "6".into();
    assert_eq!(digest(sample()), digest(changed.clone()));
    let mut gated = sample();
    gated["spec"]["readinessGates"] = json!([{"conditionType": "x"}]);
    changed["spec"] = gated["spec"].clone();
    assert_ne!(digest(gated), digest(changed));
}

#[test]
fn the_past_of_a_pod_travels_but_is_no_news() {
    let mut scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let bound = |status: Value| {
        let mut value = sample();
        value["status"] = status;
        pod(value).into_bound().unwrap().object
    };
    let running = bound(json!({"phase": "Running", "podIP": "10.0.0.2", "conditions": [scheduled.clone()]}));
    assert_eq!(body(&running)["status"], json!({"conditions": [scheduled.clone()]}));
    let ended =
        bound(json!({"phase": "Succeeded", "podIP": "10.0.0.2", "conditions": [{"type": "Ready"}, scheduled.clone()]}));
    let all = json!({"phase": "Succeeded", "podIP": "10.0.0.2", "conditions": [scheduled.clone()]});
    assert_eq!(body(&ended)["status"], all);
    assert_eq!(ended.digest, running.digest);
    assert!(ended.has_ended && !running.has_ended);
    let released = json!({"type": "HeldUpgrade", "status": "False"});
    let was_held = bound(json!({"phase": "Running", "conditions": [released.clone(), scheduled.clone()]}));
    assert_eq!(body(&was_held)["status"], json!({"conditions": [scheduled.clone(), released]}));
    assert_eq!(was_held.digest, running.digest);
    scheduled["status"] = "False".into();
    assert_eq!(body(&bound(json!({"conditions": [scheduled]}))).get("status"), None);
}

#[test]
fn digest_of_a_pod_is_that_of_its_body_with_gates_and_without_past() {
    let digest = |object: &Told, body: Value| made_object(object.digest.key.clone(), "u1".to_owned(), body).digest;
    let plain = pod(sample()).into_bound().unwrap().object;
    assert_eq!(plain.digest, digest(&plain, body(&plain)));
    let mut gated = sample();
    gated["spec"]["readinessGates"] = json!([{"conditionType": "x"}]);
    gated["status"] = json!({"phase": "Succeeded", "conditions": [{"type": "x", "status": "True", "reason": "r"}]});
    let gated = pod(gated).into_bound().unwrap().object;
    let mut told = body(&gated);
    assert_eq!(told["status"], json!({"phase": "Succeeded", "conditions": [{"type": "x", "status": "True"}]}));
    told["status"] = json!({"conditions": [{"type": "x", "status": "True"}]});
    assert_eq!(gated.digest, digest(&gated, told));
}

#[test]
fn a_pod_that_only_a_controller_calls_unready_is_noticed() {
    let unready = |status: Value, gates: Value| {
        let mut value = sample();
        value["status"] = status;
        value["spec"]["readinessGates"] = gates;
        pod(value).into_bound().unwrap().falsely_unready
    };
    let conditions = |containers: &str, pod: &str| json!({"conditions": [{"type": "ContainersReady", "status": containers}, {"type": "Ready", "status": pod}]});
    assert!(unready(conditions("True", "False"), Value::Null));
    assert!(!unready(conditions("True", "True"), Value::Null));
    assert!(!unready(conditions("False", "False"), Value::Null));
    assert!(!unready(conditions("True", "False"), json!([{"conditionType": "x"}])));
}

#[test]
fn reason_is_of_the_pod_or_of_its_first_waiting_container() {
    let reason = |status: Value| {
        let mut value = sample();
        value["status"] = status;
        pod(value).reason().to_owned()
    };
    let waits = |reason: &str| json!([{"state": {"running": {}}}, {"state": {"waiting": {"reason": reason}}}]);
    assert_eq!(reason(json!({"containerStatuses": waits("CrashLoopBackOff")})), "CrashLoopBackOff");
    let both = json!({"initContainerStatuses": waits("ErrImagePull"), "containerStatuses": waits("PodInitializing")});
    assert_eq!(reason(both), "ErrImagePull");
    assert_eq!(reason(json!({"reason": "Evicted", "containerStatuses": waits("x")})), "Evicted");
    assert_eq!(reason(json!({"containerStatuses": [{"state": {"running": {}}}]})), "");
}

#[test]
fn unbound_or_nameless_pods_go_nowhere() {
    let mut unbound = sample();
    unbound["spec"]["nodeName"] = Value::Null;
    assert!(pod(unbound).into_bound().is_none());
    let mut nameless = sample();
    nameless["metadata"]["uid"] = "".into();
    assert!(pod(nameless).into_bound().is_none());
}

#[test]
fn config_objects_keep_their_data() {
    let map: DynamicObject = serde_json::from_value(json!({
        "metadata": {"name": "m", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "data": {"k": "v"}, "immutable": true
    }))
    .unwrap();
    let object = config_object("ConfigMap", map).unwrap();
    assert_eq!(object.body["data"]["k"], "v");
    assert_eq!((object.body["kind"].as_str(), object.body["immutable"].as_bool()), (Some("ConfigMap"), Some(true)));
    assert_eq!(object.body["metadata"].get("resourceVersion"), None);
}

#[test]
fn claim_has_the_attachment_of_one_node() {
    let key = Kind::Claim.key("ns", "data");
    let claim =
        |volume: Value| Told::new(made_object(key.clone(), "u1".into(), json!({"kind": "x", "volume": volume})));
    let csi = claim(json!({"name": "pv", "spec": {"csi": {"driver": "d", "volumeHandle": "h"}}}));
    let asked = |driver: &str, handle: &str| {
        assert_eq!((driver, handle), ("d", "h"));
        Some(json!({"attached": true}).to_string())
    };
    let attached = with_attachment(&csi, asked).unwrap();
    assert_eq!(body(&attached)["attachment"], json!({"attached": true}));
    assert_eq!(body(&attached)["volume"], body(&csi)["volume"]);
    assert_eq!((&attached.digest.key, &attached.digest.uid), (&csi.digest.key, &csi.digest.uid));
    assert_ne!(attached.digest, csi.digest);
    assert_eq!(with_attachment(&csi, |_, _| None), None, "not attached");
    for volume in [Value::Null, json!({"spec": {"hostPath": {"path": "/"}}}), json!({"spec": {"csi": {}}}), json!(1)] {
        assert_eq!(with_attachment(&claim(volume), asked), None);
    }
}
