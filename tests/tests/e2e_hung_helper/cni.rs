//! A CNI plugin that hangs for one pod.

use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::json;

use super::{all_else_goes_on, executable, force_delete, on_host_network, simple, wait_no_process, wait_told, watched};

#[test]
fn a_plugin_that_hangs_is_one_pods_trouble() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hungcni");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let bin = cluster.folder().join("cni");
    std::fs::create_dir_all(&bin).expect("a folder");
    let (flag, plugin) = (cluster.folder().join("cni.hangs"), bin.join("slow"));
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\ncase \"$CNI_ARGS\" in *K8S_POD_NAME=stuck*) while [ -e {} ]; do sleep 0.2; done;; esac\n\
         echo '{{\"cniVersion\":\"1.0.0\",\"ips\":[{{\"address\":\"10.84.81.2/24\"}}]}}'\n",
        flag.display()
    );
    std::fs::write(&plugin, script).expect("written");
    executable(&plugin);
    node.configure(&format!("network: {{mode: cni, cni: {{bin-dirs: ['{}']}}}}\n", bin.display()));
    let conf = node.root().join("etc/cni/net.d");
    std::fs::create_dir_all(&conf).expect("a folder");
    let network = json!({"cniVersion": "1.0.0", "name": "hung", "plugins": [{"type": "slow"}]});
    std::fs::write(conf.join("10.conflist"), network.to_string()).expect("written");
    node.start();
    node.wait_ready();
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    std::fs::write(&flag, "").expect("written");
    kubectl.apply_all(&[on_host_network(watched("host", on)), simple("stuck", on)]);
    kubectl.wait_ready("host");
    all_else_goes_on(kubectl, on, "host", simple("other", on));
    wait_told(kubectl, "stuck", 90, &["FailedCreatePodSandBox", "slow", "it did not end within 60 s"]);
    force_delete(kubectl, "stuck");
    all_else_goes_on(kubectl, on, "host", simple("another", on));
    std::fs::remove_file(&flag).expect("it hung");
    let name = plugin.display().to_string();
    wait_no_process(&name, |line| line.contains(&name));
    kubectl.apply_all(&[simple("stuck", on)]);
    kubectl.wait_ready("stuck");
}
