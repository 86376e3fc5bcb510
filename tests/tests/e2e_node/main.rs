//! The node itself: resource pressure, conditions and events, images that are added and removed.

mod allocator;
mod descriptors;
mod disk;
mod pressure;
mod pull;
mod reboot;
mod shutdown;
mod small_disk;

use std::process::Command;

use sampan_tests::{Cluster, EdgeNode};
use serde_json::Value;

/// The state of the host's disk must not affect a test.
const NO_DISK: &str = "nodefs.available: '0', nodefs.inodesFree: '0', imagefs.available: '0', imagefs.inodesFree: '0'";

/// A joined node with this `config.yaml`, started and Ready.
fn node_with(cluster: &Cluster, name: &str, config: &str) -> EdgeNode {
    let mut node = EdgeNode::prepare(cluster, &format!("{name}-{}", cluster.kubectl.namespace));
    configure(&node, config);
    node.start();
    node.wait_ready();
    node
}

fn configure(node: &EdgeNode, config: &str) {
    let folder = node.root().join("etc/edge-runtime");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("config.yaml"), config).expect("written");
}

/// Imports another image than the one of every node.
fn import_other(cluster: &Cluster, node: &EdgeNode, name: &str) {
    let (program, archive) = (cluster.folder().join("other-busybox"), cluster.folder().join("other.tar"));
    let mut bytes = std::fs::read("/bin/busybox").expect("busybox-static is installed");
    bytes.extend(name.as_bytes());
    std::fs::write(&program, bytes).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("a mode");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lib/make-busybox-image.sh");
    let made = Command::new(script).arg(&archive).arg(name).env("BUSYBOX", &program).status();
    assert!(made.expect("the script starts").success(), "the image can be made");
    node.edge_ok(&["import", &archive.display().to_string()]);
}

fn condition(node: &Value, name: &str) -> Value {
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == name).unwrap_or(Value::Null)
}

fn pod_condition(pod: &Value, name: &str) -> Value {
    condition(pod, name)
}
