//! Small objects whose fields take much memory once they are read: the bridge keeps labels, selectors and wishes of pods.

use serde_json::{Value, json};

use super::workloads::{template, workload};
use super::{Tenant, named, path};
use crate::siege::Attack;

/// Number of fields or entries of one object, whose JSON stays below 64 KiB.
const MANY: usize = 1_500;
const COLLECTIONS: &[&str] = &[
    "batch/v1/cronjobs",
    "policy/v1/poddisruptionbudgets",
    "autoscaling/v2/horizontalpodautoscalers",
    "apps/v1/deployments",
    "apps/v1/replicasets",
    "apps/v1/statefulsets",
    "pods",
];

/// A list of one entry, many times.
fn many(entry: &Value) -> Value {
    vec![entry.clone(); MANY].into()
}

fn requirements() -> Value {
    many(&json!({"key": "a", "operator": "Exists"}))
}

/// Labels or annotations.
fn labels() -> Value {
    (0..2 * MANY).map(|at| (format!("k{at}"), json!("v"))).collect::<serde_json::Map<_, _>>().into()
}

/// managedFields that the client sends itself, with thousands of fields.
fn managers(version: &str) -> Value {
    let fields: serde_json::Map<_, _> = (0..10 * MANY).map(|at| (format!("f:a{at}"), json!({"f:b": {}}))).collect();
    json!([{"manager": "m", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields}])
}

/// A pod with one of the lists that the scheduler reads. It fits on no node.
fn pod(name: &str, wish: usize) -> Value {
    let mut spec = template("x", json!({"nodeSelector": {"none": "none"}}))["spec"].take();
    let mut meta = json!({"name": name});
    match wish {
        0 => {
            spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": requirements()}]}}})
        }
        1 => {
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            many(&json!({"topologyKey": "a", "labelSelector": {}}))}})
        }
        2 => spec["tolerations"] = many(&json!({"key": "a", "operator": "Exists"})),
        3 => {
            spec["topologySpreadConstraints"] = (0..MANY / 4)
                .map(|at| {
                    json!({"maxSkew": 1, "topologyKey": format!("k{at}"), "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}})
                })
                .collect()
        }
        4 => {
            spec["volumes"] = (0..MANY / 2)
                .map(|at| json!({"name": format!("v{at}"), "persistentVolumeClaim": {"claimName": "c"}}))
                .collect()
        }
        5 => {
            spec["containers"][0]["envFrom"] =
                (0..MANY / 2).map(|at| json!({"configMapRef": {"name": format!("a{at}"), "optional": true}})).collect();
        }
        _ => meta["labels"] = labels(),
    }
    json!({"metadata": meta, "spec": spec})
}

/// Number of different pods of [`pod`], and of other objects of [`object`].
const PODS: usize = 7;
const OTHERS: usize = 6;

/// An object of another kind, with its collection.
fn object(name: &str, kind: usize) -> (&'static str, Value) {
    match kind {
        0 => (
            "batch/v1/cronjobs",
            json!({"metadata": {"name": name, "labels": labels()}, "spec": {
            "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template("x", json!({"restartPolicy": "Never"}))}}}}),
        ),
        1 => (
            "policy/v1/poddisruptionbudgets",
            json!({"metadata": {"name": name}, "spec": {
            "minAvailable": 1, "selector": {"matchExpressions": requirements()}}}),
        ),
        2 => (
            "autoscaling/v2/horizontalpodautoscalers",
            json!({"metadata": {"name": name}, "spec": {
            "maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
            "metrics": vec![json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 1}}}); MANY / 4]}}),
        ),
        3 => (
            "policy/v1/poddisruptionbudgets",
            json!({"metadata": {"name": name, "annotations": labels()}, "spec": {
            "minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}),
        ),
        4 => {
            let mut pods = template("x", json!({}));
            pods["metadata"]["labels"] = labels();
            (
                "apps/v1/statefulsets",
                json!({"metadata": {"name": name}, "spec": {"replicas": 0, "serviceName": "x", "template": pods,
                "selector": {"matchLabels": {"k0": "v"}}}}),
            )
        }
        _ => (
            "apps/v1/replicasets",
            json!({"metadata": {"name": name}, "spec": {"replicas": 0, "template": template("x", json!({})),
            "selector": {"matchExpressions": many(&json!({"key": "app", "operator": "Exists"}))}}}),
        ),
    }
}

pub(super) fn attacks(tenant: &Tenant) -> Vec<Attack<'_>> {
    vec![
        tenant.making("fields that take memory", COLLECTIONS, |asker, random| {
            let name = named(random, 1_000);
            let kind = random.below(PODS + OTHERS);
            let (collection, body) = if kind < PODS { ("pods", pod(&name, kind)) } else { object(&name, kind - PODS) };
            asker.post(&path(collection), &body)
        }),
        tenant.making("managers of many fields", COLLECTIONS, |asker, random| {
            let mut scaler = object(&named(random, 1_000), 2).1;
            scaler["spec"]["metrics"] = Value::Null;
            scaler["metadata"]["managedFields"] = managers("autoscaling/v2");
            asker.post(&path("autoscaling/v2/horizontalpodautoscalers"), &scaler)
        }),
        tenant.making("autoscalers of a large selector", COLLECTIONS, |asker, random| {
            let requirements = vec![json!({"key": "app", "operator": "Exists"}); 2 * MANY];
            let mut target = workload("d", 1, json!({}));
            target["spec"]["selector"] = json!({"matchExpressions": requirements});
            asker.post(&path("apps/v1/deployments"), &target);
            let mut scaler = object(&named(random, 1_000), 2).1;
            scaler["spec"]["metrics"] = Value::Null;
            scaler["spec"]["scaleTargetRef"]["name"] = json!("d");
            asker.post(&path("autoscaling/v2/horizontalpodautoscalers"), &scaler)
        }),
        tenant.making("large Leases that are renewed", &["coordination.k8s.io/v1/leases"], |asker, random| {
            let (leases, name) = (path("coordination.k8s.io/v1/leases"), named(random, 300));
            let bytes = random.one(&[15_000, 15_000, 1_000_000]);
            let mut lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": "x".repeat(bytes)}});
            if random.below(2) == 0 {
                lease["metadata"]["managedFields"] = managers("coordination.k8s.io/v1");
            }
            asker.post(&leases, &lease);
            let time = format!(
                "2026-01-01T00:{:02}:{:02}.{:06}Z",
                random.below(60),
                random.below(60),
                random.below(1_000_000)
            );
            let renewed = json!({"spec": {"renewTime": time}}).to_string();
            asker.ask("PATCH", &format!("{leases}/{name}"), "application/merge-patch+json", renewed.as_bytes())
        }),
    ]
}

#[test]
fn objects_are_smaller_than_64_kib() {
    for body in (0..PODS).map(|wish| pod("x", wish)).chain((0..OTHERS).map(|kind| object("x", kind).1)) {
        assert!((20 << 10..64 << 10).contains(&body.to_string().len()), "{}", body.to_string().len());
    }
}
