//! Mount propagation between a container and its node while the container runs, in the directions of its manifest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

/// A folder that is a shared mount, like all of a device with systemd. It and the mounts below it are unmounted when it
/// is dropped.
struct Shared(PathBuf);

impl Shared {
    fn new(folder: PathBuf) -> Self {
        std::fs::create_dir(&folder).expect("a folder");
        let path = folder.display().to_string();
        run("mount", &["--bind", &path, &path]);
        let shared = Self(folder);
        run("mount", &["--make-shared", &path]);
        shared
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--recursive").arg(&self.0).status();
    }
}

fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).status().expect("it starts");
    assert!(done.success(), "{program} {args:?}");
}

fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("a file of the kernel");
    table.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

#[test]
fn mounts_pass_where_the_manifest_says() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("mounts");
    let shared = Shared::new(cluster.folder().join("shared"));
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/in", "mountPropagation": "HostToContainer"},
        {"name": "v", "mountPath": "/none"}]});
    let volumes = json!({ "volumes": [host_path("v", &shared.0)] });
    let watcher = with(shell("c", "exec sleep 1000"), &mounts);
    let maker = with(
        shell("c", "exec sleep 1000"),
        &json!({"securityContext": {"privileged": true},
            "volumeMounts": [{"name": "v", "mountPath": "/both", "mountPropagation": "Bidirectional"}]}),
    );
    let bold = json!({"volumeMounts": [{"name": "v", "mountPath": "/both", "mountPropagation": "Bidirectional"}]});
    let bold = with_spec(pod("bold", &node.name, json!([with(shell("c", "true"), &bold)])), &volumes);
    kubectl.apply_all(&[
        with_spec(pod("watcher", &node.name, json!([watcher])), &volumes),
        with_spec(pod("maker", &node.name, json!([maker])), &volumes),
    ]);
    kubectl.wait_ready("watcher");
    kubectl.wait_ready("maker");
    // Only privileged containers may propagate mounts to the node; the API refuses others.
    let refused = kubectl.try_apply(&bold.to_string()).expect_err("not privileged");
    assert!(
        refused.contains("Bidirectional mount propagation is available only to privileged containers"),
        "{refused}"
    );
    let inside = |pod: &str, script: &str| {
        until(Duration::from_secs(40), script, || kubectl.run(&["exec", pod, "--", "sh", "-c", script]))
    };

    // From the node into running containers.
    let late = shared.0.join("late");
    std::fs::create_dir(&late).expect("a folder");
    run("mount", &["-t", "tmpfs", "sampan-test", late.to_str().expect("text")]);
    std::fs::write(late.join("f"), "from the node").expect("written");
    assert_eq!(inside("watcher", "cat /in/late/f"), "from the node");
    assert_eq!(inside("maker", "cat /both/late/f"), "from the node");
    assert_eq!(inside("watcher", "ls /none/late"), "", "nothing passes by default");

    // From a container to the node and to the other container, but never from one with HostToContainer.
    let _ = inside("maker", "mkdir -p /both/own && mount -t tmpfs own /both/own && echo from the pod >/both/own/f");
    assert_eq!(std::fs::read_to_string(shared.0.join("own/f")).expect("it passed"), "from the pod\n");
    assert_eq!(inside("watcher", "cat /in/own/f"), "from the pod\n");

    // A mount that is removed on the node disappears in the containers. A mount that the pod made stays on the node
    // after the pod, with its content.
    run("umount", &[late.to_str().expect("text")]);
    assert_eq!(inside("watcher", "ls /in/late"), "");
    let _ = kubectl.ok(&["delete", "pod", "maker", "watcher", "--wait=false"]);
    kubectl.wait_gone("pod", "maker", 15);
    kubectl.wait_gone("pod", "watcher", 15);
    assert!(is_mounted(&shared.0.join("own")), "as with a kubelet, who mounts also unmounts");
    assert_eq!(std::fs::read_to_string(shared.0.join("own/f")).expect("untouched"), "from the pod\n");
}
