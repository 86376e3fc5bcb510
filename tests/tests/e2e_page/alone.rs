//! A network of the test's own. Other suites create and remove interfaces of the host all the time, and Chromium then drops
//! its connections (`net::ERR_NETWORK_CHANGED`).

use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use sampan_tests::{Cluster, EdgeNode, Lan};

/// Last number of the node's address in its LAN.
const PLACE: u8 = 11;

/// Moves this thread, and all programs that it starts from now on, into a network that has only loopback. False: they stay
/// in the host's, because only root may do this, or because the API server of `TEST_KUBECONFIG` is there.
pub(crate) fn enter() -> bool {
    if std::env::var_os("TEST_KUBECONFIG").is_some() || unshare(CloneFlags::CLONE_NEWNET).is_err() {
        return false;
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("iproute2 is installed");
    assert!(up.success(), "loopback is up");
    true
}

/// A bridge with these flags and a node that is Ready. If this thread is `alone`, the pods' interfaces are in a network of
/// the node's own. The LAN must be dropped last.
pub(crate) fn site(alone: bool, test: &str, flags: &[&str]) -> (Option<Lan>, Cluster, EdgeNode) {
    if !alone {
        let cluster = Cluster::start_with(test, flags);
        let node = cluster.node("edge");
        return (None, cluster, node);
    }
    let lan = Lan::new();
    let cluster = Cluster::start_at(test, lan.router(), flags);
    let (name, url) = (format!("edge-{}", cluster.kubectl.namespace), format!("https://{}", cluster.listen));
    let mut node = EdgeNode::prepare_behind(&cluster, &name, &url, Some(lan.place(PLACE)));
    node.start();
    node.wait_ready();
    (Some(lan), cluster, node)
}
