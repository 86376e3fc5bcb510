//! Features of a board that need configuration: devices by name, other OCI runtimes, limits for a pod as a whole.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use crate::{node_with, once, status};

const RESOURCE: &str = "sampan.dev/thing";

/// A device that containers do not have by default.
fn device() -> &'static str {
    let known = ["/dev/fuse", "/dev/loop-control", "/dev/hwrng", "/dev/kmsg"];
    known.into_iter().find(|path| Path::new(path).exists()).expect("a device for the test")
}

/// A control file of a cgroup that `pid` is in, or of its parent.
fn cgroup_file(pid: u32, parent: bool, v1: (&str, &str), v2: &str) -> String {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process is there");
    let of = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (names, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            names.split(',').any(|name| name == controller).then(|| PathBuf::from(path))
        })
    };
    let (mount, path, file) = match of(v1.0) {
        Some(path) => (format!("/sys/fs/cgroup/{}", v1.0), path, v1.1),
        None => ("/sys/fs/cgroup".to_owned(), of("").expect("a v2 cgroup"), v2),
    };
    let path = if parent { path.parent().expect("a parent").to_path_buf() } else { path };
    let file = Path::new(&mount).join(path).join(file);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).trim().to_owned()
}

#[test]
fn devices_runtimes_and_limits_by_configuration() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("board");
    let device = device();
    let config = format!(
        "devices: {{{RESOURCE}: [{device}]}}\nruntimes: {{second: {{command: runc}}}}\n\
         security: {{pod-pids-limit: 50}}\nreserved: {{memory-bytes: 1073741824}}\n"
    );
    let node = node_with(&cluster, &config);
    let kubectl = &cluster.kubectl;
    let object = kubectl.get("node", &node.name).expect("the node");
    assert_eq!(object["status"]["allocatable"][RESOURCE], "1", "{object}");
    let handlers = &object["status"]["runtimeHandlers"];
    assert_eq!((&handlers[0]["name"], &handlers[1]["name"]), (&json!(""), &json!("second")), "{object}");

    // Their objects are cluster-scoped, outside the test's namespace.
    let class = |name: &str| format!("{name}-{}", kubectl.namespace);
    for (name, handler) in [("quick", "second"), ("lost", "kata")] {
        kubectl.apply_all(&[json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": class(name)}, "handler": handler, "overhead": {"podFixed": {"memory": "1Mi"}}})]);
    }
    let thing = json!({"resources": {"limits": {RESOURCE: "1"}}, "securityContext": {"runAsUser": 33}});
    let opens = format!("exec 3<{device} && echo open; exec sleep 1000");
    let probe = json!({"readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}});
    let whole = json!({"resources": {"limits": {"memory": "48Mi", "cpu": "500m"}}});
    let sleeper = || json!([with(shell("c", "exec sleep 1000"), &probe)]);
    kubectl.apply_all(&[
        pod("holder", &node.name, json!([with(shell("c", &opens), &thing)])),
        once("without", &node, &format!("[ -e {device} ] || echo none"), &json!({}), &json!({})),
        with_spec(pod("second", &node.name, sleeper()), &json!({"runtimeClassName": class("quick")})),
        with_spec(pod("whole", &node.name, sleeper()), &whole),
    ]);
    kubectl.wait_ready("holder");
    kubectl.wait_phase("without", "Succeeded");
    assert_eq!((kubectl.ok(&["logs", "holder"]), kubectl.ok(&["logs", "without"])), ("open\n".into(), "none\n".into()));

    // A second pod does not fit beside it.
    kubectl.apply_all(&[pod("late", &node.name, json!([with(shell("c", &opens), &thing)]))]);
    let late = kubectl.wait_phase("late", "Failed");
    assert_eq!(late["status"]["reason"], format!("OutOf{RESOURCE}"), "{late}");
    let _ = kubectl.ok(&["delete", "pod", "holder", "late", "--wait=false"]);
    kubectl.wait_gone("pod", "holder", 15);
    kubectl.apply_all(&[pod("next", &node.name, json!([with(shell("c", &opens), &thing)]))]);
    kubectl.wait_ready("next");

    // Ready by an exec probe, so the right runtime was called.
    let second = kubectl.wait_ready("second");
    let id = container_id(status(&second));
    let state = node.root().join("run/edge-runtime/runtime-second").join(&id);
    assert!(state.exists() && !node.container_pids().contains_key(&id), "{}", state.display());
    let unknown = json!({"runtimeClassName": class("lost")});
    kubectl.apply_all(&[with_spec(pod("kata", &node.name, sleeper()), &unknown)]);
    until(Duration::from_secs(15), "an event names the missing runtime", || {
        let events = kubectl.run(&["get", "events", "--field-selector", "involvedObject.name=kata"])?;
        if events.contains("FailedCreatePodSandBox") && events.contains("\"kata\"") { Ok(()) } else { Err(events) }
    });
    let none = with_spec(pod("none", &node.name, sleeper()), &json!({"runtimeClassName": class("none")}));
    let refused = kubectl.try_apply(&none.to_string()).expect_err("there is no such class");
    assert!(refused.contains("pod rejected: RuntimeClass") && refused.contains("not found"), "{refused}");
    assert_eq!(second["spec"]["overhead"]["memory"], "1Mi", "{second}");
    for name in ["quick", "lost"] {
        let _ = kubectl.ok(&["delete", "runtimeclass", &class(name), "--wait=false"]);
    }

    let ready = kubectl.wait_ready("whole");
    assert_eq!(ready["status"]["qosClass"], "Guaranteed", "{ready}");
    let id = container_id(status(&ready));
    let pid = node.container_pids()[&id];
    let limit = |parent| cgroup_file(pid, parent, ("memory", "memory.limit_in_bytes"), "memory.max");
    assert_eq!((limit(false), limit(true)), ((48 << 20).to_string(), (48 << 20).to_string()));
    // No swap in addition, if the kernel counts swap.
    if Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists() {
        assert_eq!(cgroup_file(pid, false, ("memory", "memory.memsw.limit_in_bytes"), ""), (48 << 20).to_string());
    }
    assert_eq!(cgroup_file(pid, true, ("pids", "pids.max"), "pids.max"), "50");
}
