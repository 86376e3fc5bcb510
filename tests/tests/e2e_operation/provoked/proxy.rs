//! The HTTP proxy on the way to the bridge.

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;

use sampan_tests::{Cluster, EdgeNode, HttpProxy, can_run};

use crate::{assert_provoked, examined};

#[test]
fn proxy_refuses_and_its_login_is_open_to_all() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("refusing");
    let node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    // Loopback is reached without a proxy.
    let file = node.root().join("var/lib/edge-runtime/identity/identity.json");
    let text = fs::read_to_string(&file).expect("it has joined");
    let moved = text.replace(&cluster.listen.to_string(), "bridge.invalid:7443");
    assert_ne!(moved, text);
    fs::write(&file, moved).expect("written");

    node.configure("proxy: {url: 'http://127.0.0.1:1'}\n");
    let absent = examined(node.root(), |_| ());
    assert_provoked(&absent, "proxy", "error", "proxy 127.0.0.1:1: ", "section proxy of config.yaml");
    let proxy = HttpProxy::start(Ipv4Addr::LOCALHOST.into(), &[], Some("Basic another"));
    let login = node.root().join("proxy.user");
    fs::write(&login, "name:hunter22\n").expect("written");
    fs::set_permissions(&login, Permissions::from_mode(0o644)).expect("a mode");
    node.configure(&format!("proxy: {{url: '{}', user-file: {}}}\n", proxy.url(), login.display()));
    let refused = examined(node.root(), |_| ());
    assert_provoked(&refused, "proxy", "error", "it refuses the login of proxy.user-file", "section proxy");
    assert_provoked(&refused, "proxy", "warning", "other users may read", "chmod 600");
    assert_eq!(proxy.asked(), ["CONNECT bridge.invalid:7443 HTTP/1.1"]);
}
