//! Workloads on a standalone site: manifests as a user of Kubernetes writes them, followed with kubectl, on a real
//! node.

use std::time::{Duration, Instant};

use sampan_tests::kubectl::is_ready;
use sampan_tests::manifest::shell;
use sampan_tests::{Cluster, Kubectl, can_run, until};
use serde_json::{Value, json};

fn web(replicas: u32, script: &str) -> Value {
    let probe = json!({"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1});
    let mut container = shell("web", script);
    container["readinessProbe"] = probe;
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "progressDeadlineSeconds": 60,
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
        },
    })
}

const SERVE: &str = "echo one; touch /tmp/ready; exec sleep 1000";

fn roll_out(kubectl: &Kubectl) {
    let said = kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    assert!(said.contains("deployment \"web\" successfully rolled out"), "{said}");
}

/// The pods that are not being deleted.
fn pods(kubectl: &Kubectl) -> Vec<Value> {
    let list = kubectl.ok(&["get", "pods", "-l", "app=web", "-o", "json"]);
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let all = list["items"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect()
}

/// Waits until all objects of the Deployment are deleted.
fn wait_none(kubectl: &Kubectl) {
    until(Duration::from_secs(60), "all of it is gone", || {
        let left = kubectl.run(&["get", "deployments,replicasets,pods", "-l", "app=web", "-o", "name"])?;
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_deployment_rolls_out_scales_and_rolls_back() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("workloads");
    let _node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply(&web(3, SERVE).to_string());
    roll_out(kubectl);
    assert_eq!(pods(kubectl).len(), 3);
    let table = kubectl.ok(&["get", "deployments", "--no-headers"]);
    assert_eq!(table.split_whitespace().take(4).collect::<Vec<_>>(), ["web", "3/3", "3", "3"], "{table}");

    // A rollout that respects `maxUnavailable: 0` always has enough ready pods.
    kubectl.apply(&web(3, &SERVE.replace("one", "two")).to_string());
    let mut least = usize::MAX;
    let started = Instant::now();
    while kubectl
        .run(&["rollout", "status", "deployment/web", "--watch=false"])
        .is_ok_and(|said| said.contains("Waiting"))
        && started.elapsed() < Duration::from_secs(120)
    {
        let ready = pods(kubectl).iter().filter(|pod| is_ready(pod)).count();
        least = least.min(ready);
    }
    roll_out(kubectl);
    assert!(least >= 3, "{least} of 3 were ready");
    let name = pods(kubectl)[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    assert_eq!(kubectl.ok(&["logs", &name]), "two\n");

    let history = kubectl.ok(&["rollout", "history", "deployment/web"]);
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    assert!(kubectl.ok(&["rollout", "undo", "deployment/web"]).contains("rolled back"));
    roll_out(kubectl);
    let name = pods(kubectl)[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    assert_eq!(kubectl.ok(&["logs", &name]), "one\n");
    let history = kubectl.ok(&["rollout", "history", "deployment/web"]);
    assert!(history.contains("\n3 ") && !history.contains("\n1 "), "{history}");

    assert!(kubectl.ok(&["rollout", "pause", "deployment/web"]).contains("paused"));
    let _ = kubectl.ok(&["set", "env", "deployment/web", "A=1"]);
    assert!(kubectl.ok(&["scale", "deployment/web", "--replicas=1"]).contains("scaled"));
    let _ = kubectl.ok(&["wait", "deployment/web", "--for=jsonpath={.status.replicas}=1", "--timeout=60s"]);
    assert!(pods(kubectl)[0]["spec"]["containers"][0]["env"].is_null(), "a pause holds the roll-out");
    assert!(kubectl.ok(&["rollout", "resume", "deployment/web"]).contains("resumed"));
    roll_out(kubectl);
    assert_eq!(pods(kubectl)[0]["spec"]["containers"][0]["env"][0]["value"], "1");
    assert!(kubectl.ok(&["rollout", "restart", "deployment/web"]).contains("restarted"));
    roll_out(kubectl);

    let about = kubectl.ok(&["describe", "deployment", "web"]);
    assert!(about.contains("Scaled up replica set web-") && about.contains("NewReplicaSetAvailable"), "{about}");
    let deleted = kubectl.ok(&["delete", "deployment", "web"]);
    assert!(deleted.contains("deleted"), "{deleted}");
    wait_none(kubectl);
}

/// S15: the bridge is killed while a Deployment scales up; afterwards the number of pods is right, without duplicates.
#[test]
fn s15_a_killed_bridge_ends_what_it_began() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("workloads-kill");
    let _node = cluster.node("edge");
    cluster.kubectl.apply(&web(12, SERVE).to_string());
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(150));
        cluster.kill_bridge();
        cluster.start_bridge();
    }
    roll_out(&cluster.kubectl);
    assert_eq!(pods(&cluster.kubectl).len(), 12);
    assert!(cluster.kubectl.ok(&["delete", "deployment", "web"]).contains("deleted"));
    wait_none(&cluster.kubectl);
}

/// S15: fifty Deployments roll out, and the bridge is killed repeatedly at random moments.
#[test]
fn s15_fifty_deployments_roll_whenever_the_bridge_is_killed() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("workloads-roll");
    let _node = cluster.node("edge");
    let deployment = |number: usize, version: &str| {
        let name = format!("d{number}");
        let labels = json!({"app": "many", "of": name});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": "many"}},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels}, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"version": version}},
                    "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                        "containers": [shell("c", "exec sleep 1000")]},
                },
            },
        })
    };
    let all = |version: &str| (0..50).map(|number| deployment(number, version)).collect::<Vec<_>>();
    // Versions of the pods that are not being deleted, by Deployment.
    let pods = |kubectl: &Kubectl| {
        let list: Value =
            serde_json::from_str(&kubectl.run(&["get", "pods", "-l", "app=many", "-o", "json"])?).expect("JSON");
        let mut found = std::collections::BTreeMap::<String, Vec<String>>::new();
        for pod in list["items"].as_array().into_iter().flatten() {
            let meta = &pod["metadata"];
            if meta["deletionTimestamp"].is_null() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                found.entry(text(&meta["labels"]["of"])).or_default().push(text(&meta["annotations"]["version"]));
            }
        }
        let many = found.iter().find(|(_, versions)| versions.len() > 2);
        assert!(many.is_none(), "one and its successor, and no third: {many:?}");
        Ok::<_, String>(found)
    };
    let complete = |kubectl: &Kubectl, version: &str| {
        let found = pods(kubectl)?;
        let done = found.values().filter(|versions| **versions == [version]).count();
        let table = kubectl.run(&["get", "deployments", "-l", "app=many", "--no-headers"])?;
        let ready = table.lines().filter(|line| line.split_whitespace().skip(1).take(3).eq(["1/1", "1", "1"])).count();
        if (done, ready) == (50, 50) { Ok(()) } else { Err(format!("{done} have one pod, {ready} are ready")) }
    };
    cluster.kubectl.apply_all(&all("one"));
    until(Duration::from_secs(120), "fifty pods", || complete(&cluster.kubectl, "one"));
    cluster.kubectl.apply_all(&all("two"));
    let mut chance = std::process::id();
    for _ in 0..6 {
        chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::thread::sleep(Duration::from_millis(u64::from(chance >> 16) % 900));
        let _ = pods(&cluster.kubectl);
        cluster.kill_bridge();
        cluster.start_bridge();
    }
    until(Duration::from_secs(180), "fifty roll-outs", || complete(&cluster.kubectl, "two"));
    let _ = cluster.kubectl.ok(&["delete", "deployments", "-l", "app=many", "--wait=false"]);
    until(Duration::from_secs(60), "the end of all pods", || {
        let left = pods(&cluster.kubectl)?;
        if left.is_empty() { Ok(()) } else { Err(format!("{}", left.len())) }
    });
}

#[test]
fn a_pod_that_burns_is_given_company() {
    if !can_run() {
        return;
    }
    let flags =
        ["--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-cpu-initialization-period=0s"];
    let cluster = Cluster::start_with("autoscale", &flags);
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let mut web = web(1, "touch /tmp/ready; while :; do :; done");
    web["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}});
    kubectl.apply(&web.to_string());
    roll_out(kubectl);
    // Older clients know only autoscaling/v1.
    let said = kubectl.ok(&["autoscale", "deployment/web", "--min=1", "--max=3", "--cpu-percent=50"]);
    assert!(said.contains("web autoscaled"), "{said}");
    let scaled = || {
        let replicas = kubectl.run(&["get", "deployment/web", "-o", "jsonpath={.spec.replicas}"])?;
        if replicas == "3" { Ok(()) } else { Err(replicas) }
    };
    until(Duration::from_secs(60), "three replicas", scaled);
    until(Duration::from_secs(30), "it is told", || {
        let told = kubectl.run(&["describe", "horizontalpodautoscalers.v2.autoscaling", "web"])?;
        let all = ["ScalingActive   True    ValidMetricFound", "SuccessfulRescale", "3 current / 3 desired"];
        if all.iter().all(|word| told.contains(word)) { Ok(()) } else { Err(told) }
    });
    let row = kubectl.ok(&["get", "hpa", "web", "--no-headers"]);
    assert!(row.contains("Deployment/web") && row.contains("%/50%"), "{row}");
    // An offline node sends no measurements, which causes no scaling.
    drop(node);
    until(Duration::from_secs(60), "its silence is told", || {
        let of = "jsonpath={.status.conditions[?(@.type=='ScalingActive')].reason}";
        let reason = kubectl.run(&["get", "horizontalpodautoscalers.v2.autoscaling", "web", "-o", of])?;
        if reason == "FailedGetResourceMetric" { Ok(()) } else { Err(reason) }
    });
    assert_eq!(scaled(), Ok(()));
}
