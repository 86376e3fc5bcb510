//! Effects of a pod's security context on real processes, and refused security contexts.

mod apparmor;
mod board;
mod crun;
mod hostile;
mod memory;
mod profiles;
mod secrets;
mod users;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, EdgeNode};
use serde_json::{Value, json};

/// A node with this configuration.
fn node_with(cluster: &Cluster, config: &str) -> EdgeNode {
    let mut node = EdgeNode::prepare(cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let folder = node.root().join("etc/edge-runtime");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("config.yaml"), config).expect("the configuration");
    node.start();
    node.wait_ready();
    node
}

/// A pod that runs `script` once, with these fields in its spec and in its container's security context.
fn once(name: &str, node: &EdgeNode, script: &str, spec: &Value, context: &Value) -> Value {
    let container = with(shell("c", script), &json!({"securityContext": context}));
    with_spec(with_spec(pod(name, &node.name, json!([container])), spec), &json!({"restartPolicy": "Never"}))
}

/// Status of the only container.
fn status(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}
