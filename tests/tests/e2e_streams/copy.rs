//! `kubectl cp`, which is tar through exec: fifty megabytes there and back.

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, can_run};
use serde_json::json;

use crate::{kubectls, noise};

#[test]
fn fifty_megabytes_are_copied_there_and_back() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("copy");
    let node = cluster.node("edge");
    cluster.kubectl.apply_all(&[pod("p", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("p");
    let much = noise(5, 50 << 20);
    let (there, back) = (cluster.folder().join("there"), cluster.folder().join("back"));
    std::fs::write(&there, &much).expect("a file");
    for kubectl in kubectls(&cluster) {
        let _ = kubectl.ok(&["cp", &there.to_string_lossy(), "p:/tmp/file"]);
        assert_eq!(kubectl.ok(&["exec", "p", "--", "wc", "-c", "/tmp/file"]), format!("{} /tmp/file\n", much.len()));
        let _ = kubectl.ok(&["cp", "p:/tmp/file", &back.to_string_lossy()]);
        assert!(std::fs::read(&back).expect("the copy") == much, "the copy of a copy is the file");
        std::fs::remove_file(&back).expect("removed");
        let _ = kubectl.ok(&["exec", "p", "--", "rm", "/tmp/file"]);
    }
}
