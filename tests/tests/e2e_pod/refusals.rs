//! Refused and waiting pods: the messages of `docs/pod-support.md`, as `kubectl` shows them.

use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

use crate::status;

/// Name, fields of the spec, fields of the container, and the expected texts.
type Case = (&'static str, Value, Value, &'static str, &'static str);

/// Pods that never run here: reason of phase Failed, and part of its message.
fn refused() -> Vec<Case> {
    let none = || json!({});
    let limits = |name: &str| json!({"resources": {"limits": {name: "2Mi", "memory": "16Mi", "cpu": "10m"}}});
    let unsupported = "PodFeatureUnsupported";
    vec![
        ("other-os", json!({"os": {"name": "windows"}}), none(), "PodOSNotSupported", "doesn't match node OS"),
        (
            "windows-options",
            json!({"securityContext": {"windowsOptions": {"runAsUserName": "x"}}}),
            none(),
            unsupported,
            "spec.securityContext.windowsOptions is not supported by this node",
        ),
        (
            "tcp-hook",
            none(),
            json!({"lifecycle": {"preStop": {"tcpSocket": {"port": 5}}}}),
            unsupported,
            "spec.containers[0].lifecycle.preStop.tcpSocket is not supported by this node",
        ),
        ("huge", none(), limits("hugepages-2Mi"), "OutOfhugepages-2Mi", "Node didn't have enough resource"),
        (
            "sysctl",
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
            none(),
            "SysctlForbidden",
            "kernel.msgmax",
        ),
    ]
}

/// Cases that wait for a change from outside: reason and message of the event.
fn waiting() -> Vec<Case> {
    let volume = |source: Value| json!({"volumes": [with(json!({"name": "v"}), &source)]});
    let mount = || json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    let (mounting, no) = ("FailedMount", "is not supported by this node");
    vec![
        ("csi", volume(json!({"csi": {"driver": "d.example.com"}})), mount(), mounting, no),
        ("nfs", volume(json!({"nfs": {"server": "192.0.2.1", "path": "/"}})), mount(), mounting, no),
        (
            "iscsi",
            volume(json!({"iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2000-01.test:x", "lun": 0}})),
            mount(),
            mounting,
            no,
        ),
        (
            "huge-volume",
            volume(json!({"emptyDir": {"medium": "HugePages"}})),
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "resources": {"limits": {"memory": "16Mi", "cpu": "10m"}}}),
            mounting,
            no,
        ),
        (
            "trust",
            projected(json!({"clusterTrustBundle": {"name": "b", "path": "ca.pem"}})),
            mount(),
            mounting,
            "clusterTrustBundle is not supported by this node",
        ),
        (
            "block",
            volume(json!({"persistentVolumeClaim": {"claimName": "raw"}})),
            json!({"volumeDevices": [{"name": "v", "devicePath": "/dev/raw0"}]}),
            mounting,
            "failed to fetch PVC from API server: persistentvolumeclaims \"raw\" not found",
        ),
    ]
}

#[test]
fn what_a_node_does_not_do_is_said() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("refusals");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let built = |(name, spec, container, ..): &Case| {
        with_spec(pod(name, &node.name, json!([with(shell("c", "exec sleep 1000"), container)])), spec)
    };
    let (refused, mut waiting) = (refused(), waiting());
    // An API server removes trust bundles from pods by default (feature ClusterTrustBundleProjection).
    waiting.retain(|case| case.0 != "trust" || cluster.api_address().is_some());
    // An SELinux label that no kernel here uses does not cause a refusal.
    let label = json!({"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}});
    let labelled: Case = ("label", label, json!({}), "", "");
    let pods: Vec<Value> = refused.iter().chain(&waiting).chain([&labelled]).map(built).collect();
    kubectl.apply_all(&pods);

    let event = |name: &str, reason: &str, text: &str| {
        until(Duration::from_secs(30), &format!("{name}: event {reason}: {text}"), || {
            let selector = format!("involvedObject.name={name}");
            let all = kubectl.run(&["get", "events", "--field-selector", &selector, "-o", "json"])?;
            let list: Value = serde_json::from_str(&all).map_err(|error| error.to_string())?;
            let found = list["items"].as_array().into_iter().flatten().any(|one| {
                let says = one["message"].as_str().is_some_and(|message| message.contains(text));
                one["reason"] == reason && one["type"] == "Warning" && says
            });
            if found { Ok(()) } else { Err(all) }
        });
    };
    for (name, _, _, reason, text) in &refused {
        let failed = kubectl.wait_phase(name, "Failed");
        assert_eq!(failed["status"]["reason"], *reason, "{}", failed["status"]);
        let message = failed["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(text), "{name}: {message}");
        assert!(
            failed["status"]["containerStatuses"].as_array().is_none_or(|all| all.iter().all(|c| c["started"] != true))
        );
        event(name, reason, text);
    }
    for (name, _, _, reason, text) in &waiting {
        event(name, reason, text);
        let waits = kubectl.get("pod", name).expect("the pod");
        assert_eq!(waits["status"]["phase"], "Pending", "{name}: {}", waits["status"]);
        assert_eq!(status(&waits, "c")["state"]["waiting"]["reason"], "ContainerCreating", "{name}");
    }
    if !std::path::Path::new("/sys/fs/selinux/enforce").exists() {
        kubectl.wait_ready("label");
    }
    // None of them delays the others, or its own end.
    let mut names: Vec<&str> = refused.iter().chain(&waiting).map(|case| case.0).collect();
    let mut delete = vec!["delete", "pod", "--wait=false"];
    delete.append(&mut names);
    let _ = kubectl.ok(&delete);
    for (name, ..) in refused.iter().chain(&waiting) {
        kubectl.wait_gone("pod", name, 20);
    }
}
