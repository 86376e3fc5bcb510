//! `kubectl logs`: its end, following it, and the log of the previous attempt.

use std::process::Stdio;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use crate::status;

#[test]
fn logs_are_kept_followed_and_cut() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("logs");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let never = json!({"restartPolicy": "Never"});
    let slow = "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.4; done; echo error >&2";
    let twice = "[ -e /note/been ] && { echo second; exec sleep 1000; }; touch /note/been; echo first; exit 1";
    let note = json!({"volumeMounts": [{"name": "note", "mountPath": "/note"}]});
    kubectl.apply_all(&[
        with_spec(pod("slow", on, json!([shell("c", slow)])), &never),
        with_spec(
            pod("twice", on, json!([with(shell("c", twice), &note)])),
            &json!({"volumes": [{"name": "note", "emptyDir": {}}]}),
        ),
        with_spec(pod("long", on, json!([shell("c", "seq 20000; printf 'no newline'")])), &never),
    ]);
    kubectl.wait_log("slow", "line 1");
    let mut follow = kubectl
        .command(&["logs", "-f", "slow"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    until(Duration::from_secs(20), "following ends with the pod", || match follow.try_wait() {
        Ok(Some(code)) => Ok(code),
        other => Err(format!("{other:?}")),
    });
    let output = follow.wait_with_output().expect("its output");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nerror\n");
    kubectl.wait_phase("slow", "Succeeded");
    assert_eq!(kubectl.ok(&["logs", "slow", "--tail", "2"]), "line 6\nerror\n");
    let stamped = kubectl.ok(&["logs", "slow", "--timestamps", "--tail=1"]);
    assert!(stamped.contains('T') && stamped.ends_with("Z error\n"), "{stamped}");

    kubectl.wait_phase("long", "Succeeded");
    let log = kubectl.ok(&["logs", "long"]);
    assert_eq!(log.lines().count(), 20001);
    // A last line without a newline is stored without one.
    assert!(log.ends_with("20000\nno newline"), "{}", &log[log.len() - 40..]);

    kubectl.wait_pod("twice", 20, "runs again", |pod| {
        let c = status(pod, "c");
        c["restartCount"] == 1 && c["state"]["running"].is_object()
    });
    assert_eq!(kubectl.wait_log("twice", "second"), "second\n");
    assert_eq!(kubectl.ok(&["logs", "twice", "-p"]), "first\n");
    let error = kubectl.run(&["logs", "slow", "-p"]).expect_err("there is no earlier attempt");
    assert!(error.contains("previous terminated container \"c\" in pod \"slow\" not found"), "{error}");
}
