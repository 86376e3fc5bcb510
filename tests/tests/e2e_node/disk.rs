//! Low disk space: limits of pods, unused images, and the order of eviction.

use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

use crate::small_disk::SmallDisk;
use crate::{condition, configure, import_other, node_with, pod_condition};

#[test]
fn pods_keep_to_their_disk_limits() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("storage");
    let node = node_with(&cluster, "edge", "");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let fill = |path: &str| format!("dd if=/dev/zero of={path} bs=1M count=3 2>/dev/null; exec sleep 1000");
    let limited = |script: &str, limit: &str| {
        with(shell("c", script), &json!({"resources": {"limits": {"ephemeral-storage": limit}}}))
    };
    let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let volume = |limit: &str| json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": limit}}]});
    let two = json!([limited(&fill("/file"), "2Mi"), with(limited("exec sleep 1000", "8Mi"), &json!({"name": "d"}))]);
    kubectl.apply_all(&[
        with_spec(pod("volume", on, json!([with(shell("c", &fill("/v/file")), &mounts)])), &volume("1Mi")),
        with_spec(pod("fits", on, json!([with(shell("c", &fill("/v/file")), &mounts)])), &volume("16Mi")),
        pod("layer", on, json!([limited(&fill("/file"), "1Mi")])),
        pod("one-of-two", on, two),
    ]);
    for (name, message) in [
        ("volume", "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "),
        ("layer", "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "),
        ("one-of-two", "Container c exceeded its local ephemeral storage limit \"2Mi\". "),
    ] {
        let gone = kubectl.wait_phase(name, "Failed");
        assert_eq!((&gone["status"]["reason"], &gone["status"]["message"]), (&json!("Evicted"), &json!(message)));
        assert!(pod_condition(&gone, "DisruptionTarget").is_null(), "its own doing");
        assert_eq!(kubectl.wait_event(name, "Evicted"), message);
    }
    kubectl.wait_ready("fits");
}

#[test]
fn a_short_disk_loses_unused_images_and_then_the_largest_pod() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("disk");
    let name = format!("edge-{}", cluster.kubectl.namespace);
    let root = cluster.folder().join(&name);
    let Some(_disk) = SmallDisk::mount(&cluster.folder().join("disk.img"), &root, 160) else { return };
    let mut node = EdgeNode::prepare(&cluster, &name);
    import_other(&cluster, &node, "docker.io/library/unused:1");
    let hard = "{nodefs.available: 48Mi, imagefs.available: 0%, nodefs.inodesFree: 0%, imagefs.inodesFree: 0%}";
    let images = "{gc-high-percent: 100, gc-min-age-seconds: 0}";
    configure(&node, &format!("eviction: {{hard: {hard}, pressure-transition-seconds: 1}}\nimages: {images}\n"));
    node.start();
    let object = node.wait_ready();
    assert_eq!(condition(&object, "DiskPressure")["reason"], "KubeletHasNoDiskPressure");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let fill = |mb: u32| format!("dd if=/dev/zero of=/v/file bs=1M count={mb} 2>/dev/null; exec sleep 1000");
    let holder = |name: &str, mb: u32| {
        let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        let volume = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
        with_spec(pod(name, on, json!([with(shell("c", &fill(mb)), &mounts)])), &volume)
    };
    kubectl.apply_all(&[holder("small", 1)]);
    kubectl.wait_ready("small");
    assert!(node.edge_ok(&["images"]).contains("unused"));
    // A file of the image that cannot be deleted for now.
    let stuck = file_of_unused(&root);
    attribute("+i", &stuck);
    kubectl.apply_all(&[holder("large", 90)]);
    let gone = kubectl.wait_phase("large", "Failed");
    let message = gone["status"]["message"].as_str().unwrap_or_default();
    let expected = "The node was low on resource: ephemeral-storage. Threshold quantity: 48Mi, available: ";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("request is 0, has larger consumption of ephemeral-storage. "), "{message}");
    assert_eq!(pod_condition(&gone, "DisruptionTarget")["reason"], "TerminationByKubelet");
    let images = node.edge_ok(&["images"]);
    assert!(!images.contains("unused") && images.contains("busybox"), "{images}");
    kubectl.wait_event(on, "NodeHasDiskPressure");
    until(Duration::from_secs(40), "the pressure is over", || {
        let one = condition(&kubectl.get("node", on)?, "DiskPressure");
        if one["status"] == "False" { Ok(()) } else { Err(one.to_string()) }
    });
    kubectl.wait_ready("small");
    let why = kubectl.wait_event(on, "ImageGCFailed");
    assert!(why.contains("cannot remove") || why.contains("Operation not permitted"), "{why}");
    // The file has been moved to another folder.
    attribute("-i", &file_of_unused(&root));
}

/// A file that only the image `unused` has.
fn file_of_unused(root: &std::path::Path) -> std::path::PathBuf {
    let script = "find \"$0\" -name busybox -type f -exec grep -l docker.io/library/unused {} +";
    let output = std::process::Command::new("sh").args(["-c", script]).arg(root).output().expect("sh starts");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!text.is_empty() && !text.contains('\n'), "one file: {text:?}");
    text.into()
}

fn attribute(change: &str, file: &std::path::Path) {
    let done = std::process::Command::new("chattr").arg(change).arg(file).status().expect("e2fsprogs");
    assert!(done.success(), "chattr {change}");
}

#[test]
fn a_full_disk_keeps_no_node_from_booting() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("full");
    let name = format!("edge-{}", cluster.kubectl.namespace);
    let root = cluster.folder().join(&name);
    let Some(_disk) = SmallDisk::mount(&cluster.folder().join("disk.img"), &root, 64) else { return };
    let mut node = EdgeNode::prepare(&cluster, &name);
    // Evicted pods that need the image are started again.
    let images = "images: {pinned: ['docker.io/library/busybox:latest']}";
    let hard = "{hard: {memory.available: '0'}, pressure-transition-seconds: 1}";
    configure(&node, &format!("eviction: {hard}\n{images}\n"));
    node.start();
    let object = node.wait_ready();
    assert_eq!(condition(&object, "StorageHealthy")["status"], "True");
    assert!(!condition(&object, "ClockSynchronized").is_null());
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[pod("tiny", &name, json!([shell("c", "exec sleep 1000")]))]);
    kubectl.wait_ready("tiny");
    node.kill();
    let filler = root.join("filler");
    fill(&filler);
    node.start();
    until(Duration::from_secs(40), "disk pressure", || {
        let one = condition(&kubectl.get("node", &name)?, "DiskPressure");
        if one["status"] == "True" { Ok(()) } else { Err(format!("{one} {}", node.log())) }
    });
    let why = kubectl.wait_event(&name, "FreeDiskSpaceFailed");
    assert!(why.contains("Failed to free sufficient space by deleting unused images (freed 0 bytes)"), "{why}");
    assert!(node.daemon.as_mut().is_some_and(sampan_tests::process::Process::is_running));
    std::fs::remove_file(&filler).expect("removed");
    until(Duration::from_secs(40), "the pressure is over", || {
        let one = condition(&kubectl.get("node", &name)?, "DiskPressure");
        if one["status"] == "False" { Ok(()) } else { Err(one.to_string()) }
    });
    let once = with_spec(
        pod("next", &name, json!([shell("c", "until [ -e /end ]; do sleep 0.2; done; exit 3")])),
        &json!({"restartPolicy": "Never"}),
    );
    kubectl.apply_all(&[once]);
    kubectl.wait_ready("next");
    // The disk is filled to the last byte, also when the node frees space.
    node.edge_ok(&["exec", "next", "--", "touch", "/end"]);
    for _ in 0..12 {
        fill(&filler);
        std::thread::sleep(Duration::from_secs(1));
    }
    let running = |node: &mut EdgeNode| node.daemon.as_mut().is_some_and(sampan_tests::process::Process::is_running);
    assert!(running(&mut node), "{}", node.log());
    std::fs::remove_file(&filler).expect("removed");
    let ended = kubectl.wait_phase("next", "Failed");
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
}

/// Fills the disk to the last byte, including the blocks that file systems reserve for root.
fn fill(file: &std::path::Path) {
    let _ = std::process::Command::new("dd")
        .args(["if=/dev/zero", "bs=4k", "oflag=append", "conv=notrunc"])
        .arg(format!("of={}", file.display()))
        .stderr(std::process::Stdio::null())
        .status();
}
