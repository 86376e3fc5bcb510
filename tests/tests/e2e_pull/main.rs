//! An image from a real registry on loopback to a running pod, and a wrong name.

mod secrets;

use std::time::Duration;

use sampan_tests::kubectl::is_ready;
use sampan_tests::manifest::{pod, shell};
use sampan_tests::registry::tools;
use sampan_tests::{Cluster, EdgeNode, Registry, until};
use serde_json::{Value, json};

fn waiting(pod: &Value) -> String {
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_pod_pulls_its_image() {
    if !tools() {
        return;
    }
    let cluster = Cluster::start("pull");
    let mut registry = Registry::start(cluster.folder(), false);
    let address = registry.address;
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    node.configure(&format!("registry:\n- host: {address}\n  plain-http: true\n"));
    node.start();
    node.wait_ready();
    registry.push(&cluster.folder().join("busybox.tar"), "tools/busybox:1");

    let kubectl = &cluster.kubectl;
    let image = |image: &str| {
        let mut container = shell("c", "echo pulled; exec sleep 1000");
        container["image"] = json!(format!("{address}/{image}"));
        container["imagePullPolicy"] = json!("IfNotPresent");
        json!([container])
    };
    kubectl.apply_all(&[
        pod("right", &node.name, image("tools/busybox:1")),
        pod("wrong", &node.name, image("tools/bussybox:1")),
    ]);
    kubectl.wait_ready("right");
    kubectl.wait_log("right", "pulled");
    kubectl.wait_pod("wrong", 20, "cannot be pulled", |pod| {
        ["ErrImagePull", "ImagePullBackOff"].contains(&&*waiting(pod))
    });
    let back = kubectl.wait_pod("wrong", 20, "waits", |pod| waiting(pod) == "ImagePullBackOff");
    assert!(back["status"].to_string().contains("tools/bussybox:1"), "{}", back["status"]);
    let events = kubectl.ok(&["get", "events", "--field-selector", "involvedObject.name=wrong"]);
    assert!(events.contains("Failed to pull image"), "{events}");
    let fixed = format!(r#"{{"spec":{{"containers":[{{"name":"c","image":"{address}/tools/busybox:1"}}]}}}}"#);
    let _ = kubectl.ok(&["patch", "pod", "wrong", "-p", &fixed]);
    kubectl.wait_ready("wrong");

    // As a volume: pulled for each new pod, and kept when the registry is gone.
    let mut container = shell("c", "ls /v/bin/busybox && echo mounted; exec sleep 1000");
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let mut volume = pod("volume", &node.name, json!([container]));
    let reference = format!("{address}/tools/busybox:1");
    volume["spec"]["volumes"] = json!([{"name": "v", "image": {"reference": reference, "pullPolicy": "Always"}}]);
    kubectl.apply_all(&[volume]);
    kubectl.wait_log("volume", "mounted");
    until(Duration::from_secs(20), "the event of the pull", || {
        let events = kubectl.ok(&["get", "events", "--field-selector", "involvedObject.name=volume"]);
        if events.contains(&format!("Successfully pulled image \"{reference}\"")) { Ok(()) } else { Err(events) }
    });
    registry.stop();
    let of_volume = |count: u64| {
        kubectl.wait_pod("volume", 30, "runs", move |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] == count && is_ready(pod)
        })
    };
    let id = of_volume(0)["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default().to_owned();
    let pid = node.container_pids()[id.rsplit('/').next().unwrap_or_default()];
    sampan_tests::process::signal(pid, "KILL");
    of_volume(1);
    let images = node.edge_ok(&["images"]);
    assert!(images.contains("tools/busybox"), "{images}");
}
