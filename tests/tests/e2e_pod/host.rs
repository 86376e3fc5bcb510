//! What a container sees of the host, and what the node reports about a pod and about itself.

use std::fs::read_to_string;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, until};
use serde_json::{Value, json};

use crate::status;

const RUN: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn inside(kubectl: &Kubectl, pod: &str, script: &str) -> String {
    // Retried, because a test run may cut the link.
    let limit = Duration::from_secs(40);
    until(limit, script, || kubectl.run(&["exec", pod, "--", "sh", "-c", script])).trim().to_owned()
}

fn own(path: &str) -> String {
    read_to_string(path).expect("a file of the kernel").trim().to_owned()
}

fn wait_event(kubectl: &Kubectl, pod: &str, text: &str) {
    until(Duration::from_secs(30), &format!("{pod}: {text}"), || {
        let all = kubectl.run(&["get", "events", "--field-selector", &format!("involvedObject.name={pod}")])?;
        if all.contains(text) { Ok(()) } else { Err(all) }
    });
}

/// One line of `/proc/PID/status`.
fn capabilities(status: &str, line: &str) -> String {
    status.lines().find_map(|l| l.strip_prefix(line)).expect("a line of capabilities").trim().to_owned()
}

#[test]
fn a_container_sees_of_the_host_what_its_pod_says() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("host");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    node.configure("services: {dns: false}\n");
    node.start();
    node.wait_ready();
    let kubectl = &cluster.kubectl;
    let file = cluster.folder().join("a-file");
    std::fs::write(&file, "").expect("a file");
    let with_container = |name: &str, more: Value| pod(name, &node.name, json!([with(shell("c", RUN), &more)]));
    let quantities = json!({"cpu": "10m", "memory": "16Mi"});
    let objects = [
        with_container("plain", json!({})),
        with_spec(with_container("shares", json!({})), &json!({"hostPID": true, "hostIPC": true})),
        with_spec(
            with_container("named", json!({})),
            &json!({"hostname": "web", "subdomain": "shop", "setHostnameAsFQDN": true}),
        ),
        with_container("privileged", json!({"securityContext": {"privileged": true}})),
        with_container("burstable", json!({"resources": {"requests": quantities}})),
        with_container("guaranteed", json!({"resources": {"requests": quantities, "limits": quantities}})),
        with_spec(
            with_container("wrong-type", json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            &json!({"volumes": [{"name": "v", "hostPath": {"path": file, "type": "Directory"}}]}),
        ),
        with_spec(
            with_container(
                "env-file",
                json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef":
                {"volumeName": "v", "path": "f", "key": "A"}}}]}),
            ),
            &json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        ),
        with_container("no-image", json!({"image": "nowhere.invalid/none:1", "imagePullPolicy": "Never"})),
    ];
    kubectl.apply_all(&objects);
    for name in ["plain", "shares", "named", "privileged", "burstable", "guaranteed"] {
        kubectl.wait_ready(name);
    }

    // Separate namespaces, or the host's.
    for namespace in ["pid", "ipc"] {
        let path = format!("/proc/self/ns/{namespace}");
        let of_host = std::fs::read_link(&path).expect("a namespace").display().to_string();
        assert_eq!(inside(kubectl, "shares", &format!("readlink {path}")), of_host);
        assert_ne!(inside(kubectl, "plain", &format!("readlink {path}")), of_host);
    }
    assert_eq!(inside(kubectl, "plain", "hostname"), "plain");
    let full = format!("web.shop.{}.svc.cluster.local", kubectl.namespace);
    assert_eq!(inside(kubectl, "named", "hostname"), full);

    // Masked and read-only paths (K8s pkg/securitycontext/util.go), not for a privileged container.
    assert_eq!(inside(kubectl, "plain", "wc -c < /proc/timer_list"), "0");
    let mounted = "grep -c ' /proc/sys proc ro,' /proc/self/mounts || true";
    assert_eq!(inside(kubectl, "plain", mounted), "1");
    assert_eq!(inside(kubectl, "privileged", mounted), "0");
    let effective = |pod: &str| capabilities(&inside(kubectl, pod, "cat /proc/self/status"), "CapEff:");
    assert_eq!(effective("privileged"), capabilities(&own("/proc/self/status"), "CapBnd:"));
    assert_ne!(effective("plain"), effective("privileged"));

    // Which process the kernel kills first (K8s pkg/kubelet/qos/policy.go); values below this test's own may be
    // forbidden.
    let score = |pod: &str| inside(kubectl, pod, "cat /proc/1/oom_score_adj").parse::<i32>().expect("a number");
    assert_eq!(score("plain"), 1000);
    let burstable = score("burstable");
    assert!((3..=999).contains(&burstable), "{burstable}");
    let floor = own("/proc/self/oom_score_adj").parse::<i32>().expect("a number");
    let guaranteed = score("guaranteed");
    assert!(guaranteed == -997 || guaranteed <= floor, "{guaranteed}, and {floor} here");
    // The node and its monitor are killed last; a process that exec starts counts as the container's.
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let own_set = u64::from_str_radix(&capabilities(&own("/proc/self/status"), "CapEff:"), 16).expect("a mask");
    let protected = if own_set & CAP_SYS_RESOURCE != 0 { (-999).to_string() } else { floor.to_string() };
    let daemon = node.daemon.as_ref().map(sampan_tests::process::Process::pid);
    for (pid, name) in [(daemon, "edge-runtime"), (node.monitor_pid(), "edge-monitor")] {
        let pid = pid.expect("it runs");
        assert_eq!(own(&format!("/proc/{pid}/oom_score_adj")), protected);
        // As ps(1) and top(1) show it.
        assert_eq!(own(&format!("/proc/{pid}/comm")).trim(), name);
    }
    assert_eq!(inside(kubectl, "plain", "cat /proc/self/oom_score_adj"), "1000");

    // No signal is blocked in the container or in an exec.
    for process in ["1", "self"] {
        let mask = inside(kubectl, "plain", &format!("grep SigBlk /proc/{process}/status"));
        assert_eq!(mask.split_whitespace().last(), Some("0000000000000000"), "{process}");
    }

    // Pods that wait have an event with the reason.
    wait_event(kubectl, "wrong-type", "hostPath type check failed: ");
    assert_eq!(kubectl.get("pod", "wrong-type").expect("a pod")["status"]["phase"], "Pending");
    kubectl.wait_pod("no-image", 20, "has no image", |pod| {
        status(pod, "c")["state"]["waiting"]["reason"] == "ErrImageNeverPull"
    });
    wait_event(kubectl, "no-image", "ErrImageNeverPull");
    let refused = kubectl.wait_pod("env-file", 20, "asks for what is not built", |pod| {
        status(pod, "c")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    let message = status(&refused, "c")["state"]["waiting"]["message"].clone();
    assert_eq!(message, "fileKeyRef is not supported by this node");
    // This node has no DNS, and pods use the cluster's by default.
    wait_event(kubectl, "plain", "MissingClusterDNS");
    assert_eq!(servers(&inside(kubectl, "plain", "cat /etc/resolv.conf")), servers(&own("/etc/resolv.conf")));
}

fn servers(text: &str) -> Vec<String> {
    text.lines().filter(|line| line.starts_with("nameserver")).map(str::to_owned).collect()
}

#[test]
fn the_node_says_what_it_is() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("facts");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[pod("p", &node.name, json!([shell("c", RUN)]))]);
    let pod = kubectl.wait_ready("p");
    assert!(pod["status"]["startTime"].is_string(), "{}", pod["status"]);
    let conditions = pod["status"]["conditions"].as_array().expect("conditions");
    let types: Vec<&str> = conditions.iter().filter_map(|one| one["type"].as_str()).collect();
    // In the order of a kubelet (K8s pkg/kubelet/kubelet_pods.go, `generateAPIPodStatus`).
    assert_eq!(types, ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]);
    assert!(conditions.iter().all(|one| one["status"] == "True"), "{conditions:?}");
    let since =
        |kind: &str| conditions.iter().find(|one| one["type"] == kind).map(|one| one["lastTransitionTime"].clone());
    let order = ["PodScheduled", "PodReadyToStartContainers", "ContainersReady", "Ready"]
        .map(|kind| since(kind).and_then(|time| time.as_str().map(str::to_owned)).expect("a time"));
    assert!(order.is_sorted(), "{order:?}");

    let object = kubectl.get("node", &node.name).expect("the node");
    let info = &object["status"]["nodeInfo"];
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    assert_eq!(info["architecture"], architecture);
    assert_eq!(info["operatingSystem"], "linux");
    assert_eq!(info["kernelVersion"], own("/proc/sys/kernel/osrelease").as_str());
    assert_eq!(info["bootID"], own("/proc/sys/kernel/random/boot_id").as_str());
    assert!(info["kubeletVersion"].as_str().is_some_and(|version| version.starts_with("v1.")), "{info}");
    for field in ["machineID", "osImage", "containerRuntimeVersion"] {
        assert!(info[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {info}");
    }
    let labels = &object["metadata"]["labels"];
    assert_eq!(labels["kubernetes.io/os"], "linux");
    assert_eq!(labels["kubernetes.io/arch"], architecture);
    assert_eq!(labels["kubernetes.io/hostname"], node.name.as_str());
    let addresses = object["status"]["addresses"].as_array().cloned().unwrap_or_default();
    for kind in ["InternalIP", "Hostname"] {
        assert!(addresses.iter().any(|address| address["type"] == kind), "{kind}: {addresses:?}");
    }
    pods_find_the_labels_they_ask_for(kubectl, &node.name);
}

/// Pods with `nodeName`, which no scheduler checks (K8s pkg/kubelet/lifecycle/predicate.go).
fn pods_find_the_labels_they_ask_for(kubectl: &Kubectl, node: &str) {
    let asking = |name: &str, more: &Value| with_spec(pod(name, node, json!([shell("c", RUN)])), more);
    let affinity = |operator: &str, values: &[&str]| {
        let site = json!({"key": "site", "operator": operator, "values": values});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [site]}]}}}})
    };
    kubectl.apply_all(&[
        asking("elsewhere", &json!({"nodeSelector": {"site": "roof"}})),
        asking("nowhere", &affinity("In", &["roof", "cellar"])),
        asking("other-os", &json!({"nodeSelector": {"kubernetes.io/os": "windows"}})),
        asking("away", &affinity("NotIn", &["roof"])),
    ]);
    for name in ["elsewhere", "nowhere", "other-os"] {
        let refused = kubectl.wait_phase(name, "Failed");
        let reason = if name == "other-os" { "PodOSSelectorNodeLabelDoesNotMatch" } else { "NodeAffinity" };
        assert_eq!(refused["status"]["reason"], reason, "{}", refused["status"]);
        wait_event(kubectl, name, reason);
    }
    let message = &kubectl.get("pod", "nowhere").expect("a pod")["status"]["message"];
    let predicate = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    assert!(message.as_str().is_some_and(|text| text.ends_with(predicate)), "{message}");
    kubectl.wait_ready("away");
    // A label takes effect as soon as it is set.
    let _ = kubectl.ok(&["label", "node", node, "site=roof"]);
    kubectl.apply_all(&[
        asking("selected", &json!({"nodeSelector": {"site": "roof", "kubernetes.io/os": "linux"}})),
        asking("wanted", &affinity("In", &["roof", "cellar"])),
    ]);
    kubectl.wait_ready("selected");
    kubectl.wait_ready("wanted");
}
