//! Termination messages (test/e2e/common/node/runtime.go).

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
use serde_json::{Value, json};

use crate::status;

#[test]
fn last_words_come_from_the_file_or_from_the_log() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("words");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let once = |name: &str, script: &str, more: &Value| {
        with_spec(pod(name, on, json!([with(shell("c", script), more)])), &json!({"restartPolicy": "Never"}))
    };
    let logs = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let custom = json!({
        "terminationMessagePath": "/dev/termination-custom-log", "securityContext": {"runAsUser": 10000},
    });
    let two = |name: &str| {
        shell(name, "head -c 8000 /dev/zero | tr '\\0' y >/dev/termination-log; echo -n z >>/dev/termination-log")
    };
    kubectl.apply_all(&[
        once("file", "echo -n DONE >/dev/termination-log", &json!({})),
        once("custom", "echo -n DONE >/dev/termination-custom-log", &custom),
        once("log", "echo -n DONE; false", &logs),
        once("none", "echo -n DONE; true", &logs),
        once("both", "echo -n OK >/dev/termination-log; echo DONE", &logs),
        once("silent", "echo DONE; false", &json!({})),
        with_spec(pod("long", on, json!([two("a"), two("b"), two("c"), two("d")])), &json!({"restartPolicy": "Never"})),
    ]);
    for (name, phase, words) in [
        ("file", "Succeeded", Some("DONE")),
        ("custom", "Succeeded", Some("DONE")),
        ("log", "Failed", Some("DONE")),
        ("none", "Succeeded", None),
        ("both", "Succeeded", Some("OK")),
        ("silent", "Failed", None),
    ] {
        let pod = kubectl.wait_phase(name, phase);
        assert_eq!(status(&pod, "c")["state"]["terminated"]["message"].as_str(), words, "{name}");
    }
    let long = kubectl.wait_phase("long", "Succeeded");
    let length = |name: &str| status(&long, name)["state"]["terminated"]["message"].as_str().map(str::len);
    assert_eq!(["a", "b", "c", "d"].map(length), [Some(3072); 4], "12 KiB for the whole pod");
}
