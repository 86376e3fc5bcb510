//! Changes of the resources of a running pod: `pods/resize` (test/e2e/common/node/pod_resize.go).

use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with};
use sampan_tests::process::signal;
use sampan_tests::{Cluster, Kubectl, can_run, until};
use serde_json::{Value, json};

fn resize(cluster: &Cluster, kubectl: &Kubectl, name: &str, resources: &Value) -> Result<String, String> {
    let mut pod = kubectl.get("pod", name)?;
    pod["spec"]["containers"][0]["resources"] = resources.clone();
    // The node may change the pod meanwhile.
    pod["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    let file = cluster.folder().join("resize.json");
    std::fs::write(&file, pod.to_string()).expect("a file");
    let path = format!("/api/v1/namespaces/{}/pods/{name}/resize", kubectl.namespace);
    kubectl.run(&["replace", "--raw", &path, "-f", file.to_str().expect("a path")])
}

fn limits(cpu: &str, memory: &str) -> Value {
    let list = json!({"cpu": cpu, "memory": memory});
    json!({"requests": list, "limits": list})
}

fn requests(milli: u64) -> Value {
    json!({"requests": {"cpu": format!("{milli}m")}})
}

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

#[test]
fn a_running_pod_takes_new_resources() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("resize");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let policy = json!({"resources": limits("100m", "32Mi"), "resizePolicy": [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"}]});
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    kubectl.apply_all(&[pod("app", &node.name, json!([with(shell("c", script), &policy)]))]);
    let before = kubectl.wait_ready("app");
    assert_eq!(container(&before)["resources"], limits("100m", "32Mi"));

    let _ = resize(&cluster, kubectl, "app", &limits("200m", "32Mi")).expect("taken");
    let taken = kubectl.wait_pod("app", 20, "more processor", |pod| {
        container(pod)["resources"]["limits"]["cpu"] == "200m"
            && !pod["status"]["conditions"].to_string().contains("PodResize")
    });
    assert_eq!(container(&taken)["restartCount"], 0);
    assert_eq!(container(&taken)["containerID"], container(&before)["containerID"], "the same process");
    assert_eq!(container(&taken)["allocatedResources"]["cpu"], "200m");
    let quota = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || true";
    let quota = kubectl.ok(&["exec", "app", "--", "sh", "-c", quota]);
    assert!(quota.starts_with("20000"), "{quota}");

    let _ = resize(&cluster, kubectl, "app", &limits("200m", "48Mi")).expect("taken");
    let again = kubectl.wait_pod("app", 30, "restarted with more memory", |pod| {
        container(pod)["restartCount"] == 1 && container(pod)["resources"]["limits"]["memory"] == "48Mi"
    });
    assert_ne!(container(&again)["containerID"], container(&before)["containerID"]);

    match resize(&cluster, kubectl, "app", &limits("10000", "48Mi")) {
        // A real API server checks the node's allocatable first (K8s plugin/pkg/admission/podresize).
        Err(refused) => assert!(refused.contains("enough allocatable resources: cpu"), "{refused}"),
        Ok(_) => {
            let kept = kubectl.wait_pod("app", 20, "no node is that large", |pod| {
                let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.iter().any(|one| one["type"] == "PodResizePending" && one["reason"] == "Infeasible")
            });
            assert_eq!(container(&kept)["resources"]["limits"]["cpu"], "200m");
        }
    }
    let _ = resize(&cluster, kubectl, "app", &limits("200m", "48Mi")).expect("taken back");
    kubectl.wait_pod("app", 20, "nothing is pending", |pod| {
        !pod["status"]["conditions"].to_string().contains("PodResize")
    });
}

/// A deferred resize takes no resources from other pods, and continues when a pod that blocks it is deleted.
#[test]
fn a_resize_waits_for_room() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("room");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let about = kubectl.get("node", &node.name).expect("the node");
    let cpu = about["status"]["allocatable"]["cpu"].as_str().expect("an amount");
    let all = cpu.strip_suffix('m').map_or_else(|| cpu.parse::<u64>().map(|n| n * 1000), str::parse).expect("a number");
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let asks = |name: &str, milli| {
        pod(name, &node.name, json!([with(shell("c", script), &json!({"resources": requests(milli)}))]))
    };
    kubectl.apply_all(&[asks("large", all * 3 / 4), asks("waits", 10), asks("small", 10)]);
    for name in ["large", "waits", "small"] {
        kubectl.wait_ready(name);
    }
    let _ = resize(&cluster, kubectl, "waits", &requests(all / 2)).expect("taken");
    let kept = kubectl.wait_pod("waits", 20, "there is no room", |pod| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "PodResizePending" && one["reason"] == "Deferred")
    });
    assert_eq!(container(&kept)["allocatedResources"]["cpu"], "10m");
    // Events are written after statuses.
    let told = until(Duration::from_secs(20), "the event of the resize", || {
        let told = crate::events(kubectl, "waits");
        let deferred = "ResizeDeferred: Pod resize OutOfcpu: {\"containers\":[";
        if told.iter().any(|event| event.starts_with(deferred)) { Ok(told) } else { Err(format!("{told:?}")) }
    });
    let started = told.iter().filter(|event| event.starts_with("Started:")).count();
    assert_eq!(started, 1, "{told:?}");
    // A container that restarts meanwhile has the granted resources.
    let id = container_id(container(&kept));
    signal(node.container_pids()[&id], "KILL");
    let again = kubectl.wait_pod("waits", 20, "runs again", |pod| {
        container(pod)["restartCount"] == 1 && container(pod)["state"]["running"].is_object()
    });
    assert_eq!(container(&again)["resources"]["requests"]["cpu"], "10m");
    assert!(again["status"]["conditions"].to_string().contains("PodResizePending"), "{}", again["status"]);

    let given = |name: &str, milli: u64| {
        let milli = format!("{milli}m");
        kubectl.wait_pod(name, 20, "resized", move |pod| {
            let quantity = &container(pod)["allocatedResources"]["cpu"];
            (quantity == &json!(milli)) && !pod["status"]["conditions"].to_string().contains("PodResize")
        })
    };
    let _ = resize(&cluster, kubectl, "small", &requests(20)).expect("taken");
    given("small", 20);
    let _ = kubectl.ok(&["delete", "pod", "large", "--wait=false"]);
    kubectl.wait_pod("waits", 20, "resized", |pod| !pod["status"]["conditions"].to_string().contains("PodResize"));
}
