//! A hostPath on a file system whose server takes every question and answers none.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::process::Process;
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

use super::{all_else_goes_on, force_delete, simple, wait_no_look, wait_told, watched};

/// A FUSE mount that does not answer until it is dropped.
struct Dead {
    folder: PathBuf,
    server: Process,
}

impl Dead {
    fn mount(folder: &Path) -> Self {
        let (program, log) = (folder.join("silent"), folder.join("silent.log"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e_hung_helper/silent.c");
        let built = Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(source).status().expect("gcc starts");
        assert!(built.success(), "silent.c can be built");
        let folder = folder.join("dead");
        std::fs::create_dir_all(&folder).expect("a folder");
        let server = Process::start(Command::new(program).arg(&folder), &log);
        let line = format!(" {} ", folder.display());
        until(Duration::from_secs(10), "the file system is mounted", || {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
            if mounts.contains(&line) { Ok(()) } else { Err(server.log()) }
        });
        Self { folder, server }
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        // The end of the server ends all questions.
        self.server.kill();
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}

fn with_volume(name: &str, node: &str, volume: Value, mount: &Value) -> Value {
    let container = with(shell("c", "exec sleep 1000"), &json!({"volumeMounts": [mount]}));
    with_spec(pod(name, node, json!([container])), &json!({"volumes": [volume]}))
}

#[test]
fn a_path_that_hangs_is_one_pods_trouble() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hungpath");
    let mut node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    kubectl.apply_all(&[watched("watched", &on)]);
    kubectl.wait_ready("watched");
    let dead = Dead::mount(cluster.folder());
    let path = dead.folder.display().to_string();
    let mounted = json!({"name": "nas", "mountPath": "/nas"});
    // The path itself, a folder in it, and what is beside it by a subPath.
    let below = host_path("nas", &dead.folder.join("deep"));
    let sub = json!({"name": "nas", "mountPath": "/nas", "subPath": "dead/deep"});
    kubectl.apply_all(&[
        with_volume("itself", &on, host_path("nas", &dead.folder), &mounted),
        with_volume("below", &on, below, &mounted),
        with_volume("sub", &on, host_path("nas", cluster.folder()), &sub),
    ]);
    all_else_goes_on(kubectl, &on, "watched", simple("other", &on));
    let late = format!("{path} did not answer within 30 s");
    wait_told(kubectl, "itself", 60, &["FailedMount", "MountVolume.SetUp failed for volume \"nas\"", &late]);
    wait_told(kubectl, "below", 60, &["FailedMount", &format!("{path}/deep did not answer within 30 s")]);
    wait_told(
        kubectl,
        "sub",
        60,
        &["failed to prepare subPath for volumeMount \"nas\" of container \"c\"", "did not answer"],
    );
    all_else_goes_on(kubectl, &on, "watched", simple("again", &on));

    // A daemon that starts into it.
    node.kill();
    node.start();
    node.wait_connected(&cluster);
    all_else_goes_on(kubectl, &on, "watched", simple("restarted", &on));
    for name in ["itself", "below"] {
        force_delete(kubectl, name);
    }
    until(Duration::from_secs(60), "the node has forgotten the pods", || {
        let known = node.edge(&["ps", "-a"])?;
        if known.contains("itself") || known.contains("below") { Err(known) } else { Ok(()) }
    });
    // With the file system gone the path is a folder again, and the pod that is left can have it.
    drop(dead);
    kubectl.wait_pod("sub", 180, "it starts after all", sampan_tests::kubectl::is_ready);
    wait_no_look();
    let left = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(!left.contains(&format!(" {path} ")), "{left}");
}
