//! An OCI runtime that hangs for one pod.

use sampan_tests::node::oci_runtime;
use sampan_tests::{Cluster, EdgeNode, can_run, until};

use super::{Hanging, all_else_goes_on, force_delete, real, simple, wait_told, watched};

#[test]
fn a_runtime_that_hangs_is_one_pods_trouble() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hungrunc");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    // Only for the pod `stuck`, which its configuration names.
    let when = "case \"$*\" in *' run '*) for word in \"$@\"; do case $last in --bundle|-b) bundle=$word;; esac; last=$word; \
                done; grep -q HOSTNAME=stuck \"$bundle/config.json\";; *) false;; esac";
    let runc = Hanging::new(&cluster.folder().join("bin"), "slow-runc", &real(&oci_runtime()), when);
    node.configure(&format!("runtime: {{command: '{}', request-timeout-seconds: 20}}\n", runc.program.display()));
    node.start();
    node.wait_ready();
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    runc.hang();
    kubectl.apply_all(&[watched("watched", on), simple("stuck", on), simple("stuck2", on)]);
    kubectl.wait_ready("watched");
    // More of them than the monitor runs at a time.
    let more: Vec<_> = (3..6).map(|n| simple(&format!("stuck{n}"), on)).collect();
    kubectl.apply_all(&more);
    wait_told(kubectl, "stuck", 90, &["the OCI runtime did not return within 20 s"]);
    all_else_goes_on(kubectl, on, "watched", simple("other", on));
    force_delete(kubectl, "stuck");
    for n in 2..6 {
        force_delete(kubectl, &format!("stuck{n}"));
    }
    runc.let_go();
    runc.wait_none_left();
    until(std::time::Duration::from_secs(60), "nothing of the pods is left", || {
        let left = node.container_pids().len();
        if left == 2 { Ok(()) } else { Err(format!("{left} containers: {}", node.log())) }
    });
    kubectl.apply_all(&[simple("stuck", on)]);
    kubectl.wait_ready("stuck");
}
