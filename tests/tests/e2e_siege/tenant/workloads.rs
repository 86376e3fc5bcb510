//! Work for controllers and the scheduler: pods that fit on no node, workloads that change all the time.

use serde_json::{Value, json};

use super::{POD, Tenant, named, path};
use crate::siege::Attack;

const MERGE: &str = "application/merge-patch+json";
const APPS: &[&str] = &["apps/v1/deployments", "apps/v1/replicasets", "pods"];

/// A pod that requests nothing and fits on every node.
pub(super) fn template(app: &str, more: Value) -> Value {
    let mut spec = json!({
        "containers": [{"name": "c", "image": "none.example/none"}], "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
    });
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    json!({"metadata": {"labels": {"app": app}}, "spec": spec})
}

pub(super) fn workload(name: &str, replicas: usize, more: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, more)}})
}

/// Anti-affinity by node, spread over zones, preferred affinity: everything for which the scheduler counts pairs.
fn affinity(app: &str) -> Value {
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}});
    let weighted = |key: &str| json!({"weight": 50, "podAffinityTerm": term(key)});
    let spread = |key: &str| {
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}}})
    };
    let weights: Vec<Value> = (0..20).map(|at| weighted(["zone", "kubernetes.io/hostname"][at % 2])).collect();
    json!({
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("kubernetes.io/hostname")],
                "preferredDuringSchedulingIgnoredDuringExecution": weights},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weights},
        },
        "topologySpreadConstraints": [spread("zone"), spread("kubernetes.io/hostname")],
    })
}

pub(super) fn attacks(tenant: &Tenant) -> Vec<Attack<'_>> {
    vec![
        tenant.making("pods with anti-affinity", APPS, |asker, random| {
            let name = named(random, 10);
            if asker.post(&path("apps/v1/deployments"), &workload(&name, 120, affinity(&name))) != Some(409) {
                return None;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            let pod = json!({"metadata": {"name": named(random, 1000), "labels": {"app": "x"}},
                "spec": template("x", affinity("x"))["spec"]});
            asker.post(&path("pods"), &pod)
        }),
        tenant.making("Deployments that flap", APPS, |asker, random| {
            let name = named(random, 20);
            if asker.post(&path("apps/v1/deployments"), &workload(&name, 10, json!({}))) != Some(409) {
                return None;
            }
            let patch = match random.below(3) {
                0 => json!({"spec": {"replicas": random.below(100)}}),
                1 => json!({"spec": {"paused": random.below(2) == 0}}),
                _ => json!({"spec": {"template": {"metadata": {"annotations": {"a": named(random, 1_000_000)}}}}}),
            };
            asker.ask("PATCH", &format!("{}/{name}", path("apps/v1/deployments")), MERGE, patch.to_string().as_bytes())
        }),
        tenant.making("ReplicaSets of a million", &["apps/v1/replicasets", "pods"], |asker, random| {
            let name = named(random, 20);
            match asker.post(&path("apps/v1/replicasets"), &workload(&name, 1_000_000, json!({}))) {
                Some(409) => asker.ask("DELETE", &path("pods?labelSelector=app"), super::JSON, b"{\"gracePeriodSeconds\":0}"),
                other => other,
            }
        }),
        tenant.making("Jobs of big parallelism", &["batch/v1/jobs", "pods"], |asker, random| {
            let name = named(random, 20);
            let mut pod = template(&name, json!({"restartPolicy": "Never"}));
            pod["metadata"] = json!({});
            let job = json!({"metadata": {"name": name}, "spec": {"parallelism": 10_000, "completions": 10_000,
                "completionMode": random.one(&["Indexed", "NonIndexed"]), "backoffLimit": 1_000_000, "template": pod}});
            match asker.post(&path("batch/v1/jobs"), &job) {
                Some(409) => {
                    let patch = json!({"spec": {"suspend": random.below(2) == 0, "parallelism": random.below(10_000)}});
                    let object = format!("{}/{name}", path("batch/v1/jobs"));
                    asker.ask("PATCH", &object, MERGE, patch.to_string().as_bytes())
                }
                other => other,
            }
        }),
        tenant.making(
            "autoscalers",
            &["autoscaling/v2/horizontalpodautoscalers", "apps/v1/deployments", "pods"],
            |asker, random| {
                let name = named(random, 20);
                asker.post(&path("apps/v1/deployments"), &workload(&name, 1, json!({})));
                let metrics: Vec<Value> = (0..50)
                    .map(|at| json!({"type": "Resource", "resource": {"name": (["cpu", "memory"][at % 2]),
                        "target": {"type": "Utilization", "averageUtilization": 1 + at}}}))
                    .collect();
                let scaler = json!({"metadata": {"name": named(random, 500)}, "spec": {
                    "minReplicas": 1 + random.below(50), "maxReplicas": 100,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "metrics": metrics}});
                asker.post(&path("autoscaling/v2/horizontalpodautoscalers"), &scaler)
            },
        ),
        tenant.making("CronJobs", &["batch/v1/cronjobs", "batch/v1/jobs", "pods"], |asker, random| {
            let pod = template("x", json!({"restartPolicy": "Never"}));
            let job = json!({"metadata": {"name": named(random, 500)}, "spec": {"schedule": "* * * * *",
                "timeZone": "Europe/Berlin", "jobTemplate": {"spec": {"template": pod}}}});
            asker.post(&path("batch/v1/cronjobs"), &job)
        }),
        tenant.making(
            "StatefulSets and DaemonSets",
            &["apps/v1/statefulsets", "apps/v1/daemonsets", "pods", "persistentvolumeclaims", "apps/v1/controllerrevisions"],
            |asker, random| {
                let name = named(random, 20);
                let mut set = workload(&name, 20, json!({}));
                set["spec"]["podManagementPolicy"] = json!("Parallel");
                set["spec"]["serviceName"] = json!(name);
                set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "v"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
                let mut daemons = workload(&format!("d{name}"), 0, json!({}));
                daemons["spec"].as_object_mut()?.remove("replicas");
                asker.post(&path("apps/v1/statefulsets"), &set);
                asker.post(&path("apps/v1/daemonsets"), &daemons);
                let patch = json!({"spec": {"template": {"metadata": {"annotations": {"a": named(random, 1_000_000)}}}}});
                let kind = random.one(&["apps/v1/statefulsets/", "apps/v1/daemonsets/d"]);
                let (collection, prefix) = kind.rsplit_once('/')?;
                asker.ask("PATCH", &format!("{}/{prefix}{name}", path(collection)), MERGE, patch.to_string().as_bytes())
            },
        ),
        tenant.making("disruption budgets that overlap", &["policy/v1/poddisruptionbudgets", "pods"], |asker, random| {
            let pod = json!({"metadata": {"name": named(random, 100), "labels": {"app": "x"}},
                "spec": template("x", json!({}))["spec"]});
            asker.post(&path("pods"), &pod);
            let budget = json!({"metadata": {"name": named(random, 2_000)},
                "spec": {"minAvailable": "50%", "selector": {}}});
            asker.post(&path("policy/v1/poddisruptionbudgets"), &budget)
        }),
        tenant.making(
            "replicas of large templates",
            &["apps/v1/statefulsets", "batch/v1/jobs", "apps/v1/controllerrevisions", "pods"],
            |asker, random| {
                let name = named(random, 5);
                let env: Vec<Value> = (0..3_000).map(|at| json!({"name": format!("V{at}"), "value": "v"})).collect();
                let containers: Vec<Value> = (0..3)
                    .map(|at| json!({"name": format!("c{at}"), "image": "none.example/none", "env": env}))
                    .collect();
                let mut set = workload(&name, 200, json!({"containers": containers}));
                set["spec"]["podManagementPolicy"] = json!("Parallel");
                asker.post(&path("apps/v1/statefulsets"), &set);
                let mut pod = template(&name, json!({"containers": containers, "restartPolicy": "Never"}));
                pod["metadata"] = json!({});
                let job = json!({"metadata": {"name": name}, "spec": {"parallelism": 200, "completions": 200,
                    "completionMode": "Indexed", "template": pod}});
                asker.post(&path("batch/v1/jobs"), &job)
            },
        ),
        tenant.making("revisions of large templates", APPS, |asker, random| {
            let name = named(random, 5);
            let mut deployment = workload(&name, 0, json!({}));
            deployment["spec"]["revisionHistoryLimit"] = json!(400);
            asker.post(&path("apps/v1/deployments"), &deployment);
            let env = json!([{"name": "A", "value": format!("{}{}", random.below(1_000_000), "x".repeat(1_000_000))}]);
            let containers = json!([{"name": "c", "image": "none.example/none", "env": env}]);
            let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}}).to_string();
            asker.ask("PATCH", &format!("{}/{name}", path("apps/v1/deployments")), MERGE, patch.as_bytes())
        }),
        tenant.making("large ConfigMaps that a pod names", &["configmaps"], |asker, random| {
            let map = json!({"metadata": {"name": named(random, 60)}, "data": {"a": "x".repeat(1_000_000)}});
            asker.post(&path("configmaps"), &map);
            let (_, bait) = asker.answer("GET", &format!("{}/{POD}", path("pods")), "", b"")?;
            let bait: Value = serde_json::from_slice(&bait).ok()?;
            let volume = |at: usize| json!({"name": format!("v{at}"), "configMap": {"name": format!("x-{at}"), "optional": true}});
            let volumes: Vec<Value> = (0..60).map(volume).collect();
            let spec = template("x", json!({"nodeName": bait["spec"]["nodeName"], "volumes": volumes}))["spec"].take();
            asker.post(&path("pods"), &json!({"metadata": {"name": "names-all"}, "spec": spec}))
        }),
        tenant.making("claims", &["persistentvolumeclaims"], |asker, random| {
            let claim = json!({"metadata": {"name": named(random, 500)}, "spec": {"accessModes": ["ReadWriteOnce"],
                "storageClassName": named(random, 9), "resources": {"requests": {"storage": "1Gi"}}}});
            asker.post(&path("persistentvolumeclaims"), &claim)
        }),
    ]
}
