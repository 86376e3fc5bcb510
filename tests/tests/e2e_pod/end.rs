//! The end of a pod: grace period, the image's stop signal, force.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
use serde_json::json;

/// Imports the busybox archive under another name, with `StopSignal` in its configuration.
fn image_with_stop_signal(folder: &Path) -> String {
    let script = "set -e; mkdir $0/x; tar -xf $0/busybox.tar -C $0/x; cd $0/x; config=$(ls *.json | grep -v manifest); \
        sed -i 's/\"config\":{/\"config\":{\"StopSignal\":\"SIGRTMIN+3\",/' $config; \
        id=$(sha256sum $config | cut -d' ' -f1); mv $config $id.json; \
        sed -i \"s/\\\"Config\\\":\\\"[^\\\"]*/\\\"Config\\\":\\\"$id.json/; s|library/busybox:latest|library/systemd:latest|\" manifest.json; \
        tar -cf ../systemd.tar .; rm -r $0/x";
    let done = Command::new("sh").args(["-c", script]).arg(folder).status().expect("sh starts");
    assert!(done.success(), "the image can be made");
    folder.join("systemd.tar").display().to_string()
}

#[test]
fn a_pod_ends_with_its_signal_and_within_its_grace() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("end");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    node.edge_ok(&["import", &image_with_stop_signal(cluster.folder())]);
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    let note = json!({"volumeMounts": [{"name": "notes", "mountPath": "/notes"}]});
    let trap = |name: &str, signal: &str, seconds: u32| {
        let script = format!(
            "trap 'sleep {seconds}; echo end >/notes/{name}; exit 0' {signal}; touch /notes/{name}.up; while :; do sleep 0.1; done"
        );
        with(shell("c", &script), &note)
    };
    let mut systemd = trap("systemd", "37", 0);
    systemd["image"] = json!("systemd");
    let volumes = |grace: u32| json!({"terminationGracePeriodSeconds": grace, "volumes": [host_path("notes", &notes)]});
    kubectl.apply_all(&[
        with_spec(pod("polite", on, json!([trap("polite", "TERM", 1)])), &volumes(10)),
        with_spec(pod("systemd", on, json!([systemd])), &volumes(10)),
        with_spec(pod("deaf", on, json!([trap("deaf", "TERM", 60)])), &volumes(2)),
        with_spec(pod("forced", on, json!([trap("forced", "TERM", 60)])), &volumes(3)),
    ]);
    for name in ["polite", "systemd", "deaf", "forced"] {
        kubectl.wait_ready(name);
        sampan_tests::until(Duration::from_secs(10), "the trap is set", || {
            std::fs::metadata(notes.join(format!("{name}.up"))).map_err(|error| error.to_string())
        });
    }
    let begin = Instant::now();
    let _ = kubectl.ok(&["delete", "pod", "polite", "systemd", "deaf", "--wait=false"]);
    let _ = kubectl.ok(&["delete", "pod", "forced", "--grace-period=0", "--force", "--wait=false"]);
    kubectl.wait_gone("pod", "forced", 1);
    kubectl.wait_gone("pod", "systemd", 8);
    kubectl.wait_gone("pod", "polite", 8);
    for name in ["polite", "systemd"] {
        assert_eq!(std::fs::read_to_string(notes.join(name)).ok().as_deref(), Some("end\n"), "{name} ended by itself");
    }
    kubectl.wait_gone("pod", "deaf", 10);
    assert!(begin.elapsed() >= Duration::from_secs(2), "deaf had its grace period");
    assert!(!notes.join("deaf").exists(), "deaf was killed");
    node.wait_no_container();
    assert!(!notes.join("forced").exists(), "forced was killed");
}
