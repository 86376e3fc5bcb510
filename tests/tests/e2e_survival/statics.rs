//! Static pods survive every fault of the folder of their manifests, but not the deletion of their file.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use super::wait_running;

fn manifest(name: &str, namespace: &str) -> String {
    let mut manifest = pod(name, "", json!([shell("c", "exec sleep 1000")]));
    manifest["metadata"]["namespace"] = json!(namespace);
    manifest["spec"].as_object_mut().expect("a spec").remove("nodeName");
    manifest.to_string()
}

fn run(program: &str, args: &[&str], path: &Path) {
    assert!(Command::new(program).args(args).arg(path).status().is_ok_and(|status| status.success()), "{program}");
}

#[test]
fn static_pods_outlive_their_folder() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("folder");
    let mut node = cluster.node("edge");
    let namespace = cluster.kubectl.namespace.clone();
    let folder = node.root().join("etc/edge-runtime/manifests");
    let file = |name: &str| folder.join(format!("{name}.yaml"));
    for name in ["a", "b"] {
        std::fs::write(file(name), manifest(name, &namespace)).expect("written");
    }
    let before = wait_running(&node, 2);
    let unharmed = |node: &sampan_tests::EdgeNode, what: &str| {
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(wait_running(node, 2), before, "{what}: {}", node.log());
    };
    let said = |node: &sampan_tests::EdgeNode, what: &str| {
        until(Duration::from_secs(30), what, || if node.log().contains(what) { Ok(()) } else { Err(node.log()) });
    };

    // Incompletely written, or of another version.
    std::fs::write(file("a"), "kind: Pod\nmetadata: {").expect("written");
    said(&node, "what ran of it runs on");
    unharmed(&node, "a file that does not parse");
    node.kill();
    node.start();
    said(&node, "the monitor has 2 containers, 2 running");
    unharmed(&node, "a file that does not parse, and a new daemon");
    std::fs::write(file("a"), manifest("a", &namespace)).expect("written");

    // Its partition was not mounted, and no error shows that.
    run("mount", &["-t", "tmpfs", "none"], &folder);
    said(&node, "is another folder than before, and empty");
    unharmed(&node, "a folder that is hidden");
    node.kill();
    node.start();
    until(Duration::from_secs(30), "it has looked", || {
        let log = node.log();
        if log.matches("the monitor has 2 containers, 2 running").count() > 1 { Ok(()) } else { Err(log) }
    });
    unharmed(&node, "a folder that is hidden, and a new daemon");
    run("umount", &[], &folder);

    // Restored in one step: a folder that loses its files one by one loses its pods, as on a kubelet.
    std::fs::rename(&folder, node.root().join("manifests.old")).expect("moved away");
    unharmed(&node, "no folder");
    std::fs::create_dir(&folder).expect("made");
    unharmed(&node, "an empty one in its place");
    for name in ["a", "b", "c"] {
        std::fs::write(file(name), manifest(name, &namespace)).expect("written");
    }
    let with_new = wait_running(&node, 3);
    assert!(before.iter().all(|(id, process)| with_new.get(id) == Some(process)), "{}", node.log());
    // Pods whose files are deleted end.
    for name in ["a", "b", "c"] {
        std::fs::remove_file(file(name)).expect("removed");
    }
    wait_running(&node, 0);
}
