//! A kernel without the memory controller, as on some boards: reported on the Node and at the affected pods.

use std::path::Path;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

/// Runs the daemon in a mount namespace without a memory controller, for itself and all its children.
fn without_memory_controller(cluster: &Cluster) -> Vec<String> {
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers");
    let hide = match std::fs::read_to_string(v2) {
        Ok(controllers) => {
            let others: Vec<&str> = controllers.split_whitespace().filter(|name| *name != "memory").collect();
            let file = cluster.folder().join("controllers");
            std::fs::write(&file, others.join(" ") + "\n").expect("written");
            format!("mount --bind {} {}", file.display(), v2.display())
        }
        Err(_) => "umount /sys/fs/cgroup/memory".to_owned(),
    };
    let script = format!("{hide} && exec \"$0\" \"$@\"");
    ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned).into()
}

#[test]
fn a_kernel_without_memory_limits_is_told() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("memory");
    let kubectl = &cluster.kubectl;
    let prepared = |name: &str, config: &str| {
        let mut node = EdgeNode::prepare(&cluster, &format!("{name}-{}", kubectl.namespace));
        node.wrapper = without_memory_controller(&cluster);
        node.configure(config);
        node.start();
        node
    };
    let warns = prepared("warns", "");
    let refuses = prepared("refuses", "resources: {without-memory-controller: refuse}\n");
    for node in [&warns, &refuses] {
        node.wait_ready();
        let object = kubectl.get("node", &node.name).expect("the node");
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let memory = conditions.iter().find(|one| one["type"] == "CgroupMemory").expect("a condition");
        assert_eq!((&memory["status"], &memory["reason"]), (&json!("False"), &json!("MemoryControllerMissing")));
        let line = "cgroup_enable=memory cgroup_memory=1";
        assert!(memory["message"].as_str().is_some_and(|text| text.contains(line)), "{memory}");
    }

    let limited = json!({"resources": {"limits": {"memory": "32Mi"}}});
    let with_limit =
        |name: &str, node: &EdgeNode| pod(name, &node.name, json!([with(shell("c", "exec sleep 1000"), &limited)]));
    kubectl.apply_all(&[
        with_limit("warned", &warns),
        with_limit("refused", &refuses),
        pod("free", &refuses.name, json!([shell("c", "exec sleep 1000")])),
    ]);
    let refused = kubectl.wait_pod("refused", 20, "Failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(refused["status"]["reason"], "MemoryLimitNotEnforceable");
    let why = refused["status"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("cgroup_enable=memory"), "{why}");
    kubectl.wait_ready("free");
    kubectl.wait_ready("warned");
    let told = until(Duration::from_secs(30), "the warning", || {
        let selector = "involvedObject.name=warned,reason=MemoryLimitNotEnforced";
        let text = kubectl.run(&["get", "events", "--field-selector", selector, "-o", "json"])?;
        let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        list["items"].get(0).cloned().ok_or(text)
    });
    assert_eq!(told["type"], "Warning");
    assert!(told["message"].as_str().is_some_and(|text| text.contains("cgroup_enable=memory")), "{told}");
}
