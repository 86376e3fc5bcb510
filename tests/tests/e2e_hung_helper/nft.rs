//! `nft` that hangs: at the start, and later for a pod with a host port.

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::ports::free_address;
use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::json;

use super::{Hanging, all_else_goes_on, force_delete, on_host_network, real, simple, wait_told, watched};

#[test]
fn the_node_comes_up_and_others_run_while_nft_hangs() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hungnft");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let folder = cluster.folder().join("bin");
    let nft = Hanging::new(&folder, "nft", &real("nft"), "true");
    let path = std::env::var("PATH").expect("a PATH");
    node.env.push(("PATH".into(), format!("{}:{path}", folder.display())));
    nft.hang();
    node.start();
    node.wait_ready();
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    kubectl.apply_all(&[on_host_network(watched("host", &on)), simple("first", &on)]);
    kubectl.wait_ready("host");
    wait_told(kubectl, "first", 40, &["FailedCreatePodSandBox", "nft: it did not end within 10 s"]);
    all_else_goes_on(kubectl, &on, "host", on_host_network(simple("host2", &on)));
    nft.let_go();
    kubectl.wait_ready("first");

    // Later: the pod that needs new rules waits, and no other.
    nft.hang();
    let ports = json!({"ports": [{"containerPort": 80, "hostPort": free_address().port()}]});
    kubectl.apply_all(&[pod("port", &on, json!([with(shell("c", "exec sleep 1000"), &ports)]))]);
    all_else_goes_on(kubectl, &on, "host", simple("second", &on));
    wait_told(kubectl, "port", 40, &["FailedCreatePodSandBox", "nft: it did not end within 10 s"]);
    force_delete(kubectl, "port");
    // A daemon that starts into it again keeps what runs.
    node.kill();
    node.start();
    node.wait_connected(&cluster);
    all_else_goes_on(kubectl, &on, "host", on_host_network(simple("host3", &on)));
    nft.let_go();
    let after = json!({"ports": [{"containerPort": 80, "hostPort": free_address().port()}]});
    kubectl.apply_all(&[pod("after", &on, json!([with(shell("c", "exec sleep 1000"), &after)]))]);
    kubectl.wait_ready("after");
    nft.wait_none_left();
}
