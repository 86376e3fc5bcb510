//! Several containers, init containers, exit codes and the restart policies.

use sampan_tests::manifest::{container_id, pod, shell, with, with_spec};
use sampan_tests::process::signal;
use sampan_tests::{Cluster, can_run};
use serde_json::{Value, json};

use crate::status;

fn policy(pod: Value, restart: &str) -> Value {
    with_spec(pod, &json!({"restartPolicy": restart}))
}

#[test]
fn containers_start_in_order_and_end_as_their_policy_says() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("order");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let shared = json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
    let say = |name: &str, script: &str| with(shell(name, script), &shared);
    let volumes = json!([{"name": "shared", "emptyDir": {}}]);
    let ordered = with_spec(
        pod(
            "ordered",
            on,
            json!([
                say("one", "cat /shared/log; exec sleep 1000"),
                say("two", "echo two >>/shared/two; exec sleep 1000"),
            ]),
        ),
        &json!({"volumes": volumes, "initContainers": [
            say("first", "echo first >>/shared/log"),
            say("second", "sleep 0.2; echo second >>/shared/log"),
        ]}),
    );
    let again = "[ -e /shared/been ] && exit 0; touch /shared/been; exit 4";
    let own = with_spec(
        pod(
            "args",
            on,
            json!([with(
                json!({"name": "c", "image": sampan_tests::node::BUSYBOX, "imagePullPolicy": "Never"}),
                &json!({"command": ["sh", "-c", "echo \"$0-$1 in $(pwd)\""], "args": ["zero", "one"], "workingDir": "/var/tmp"}),
            )]),
        ),
        &json!({"restartPolicy": "Never"}),
    );
    kubectl.apply_all(&[
        ordered,
        own,
        policy(pod("done", on, json!([shell("a", "exit 0"), shell("b", "exit 0")])), "Never"),
        policy(pod("broken", on, json!([shell("a", "exit 0"), shell("b", "exit 3")])), "Never"),
        policy(pod("killed", on, json!([shell("c", "exec sleep 1000")])), "Never"),
        policy(pod("missing", on, json!([with(shell("c", ""), &json!({"command": ["/no/such"]}))])), "Never"),
        policy(with_spec(pod("second", on, json!([say("c", again)])), &json!({"volumes": volumes})), "OnFailure"),
        policy(pod("loop", on, json!([shell("c", "exit 5")])), "Always"),
        policy(
            with_spec(
                pod("stuck", on, json!([shell("c", "true")])),
                &json!({"initContainers": [shell("i", "exit 6")]}),
            ),
            "Never",
        ),
    ]);

    let ready = kubectl.wait_ready("ordered");
    assert_eq!(status(&ready, "second")["state"]["terminated"]["reason"], "Completed");
    assert_eq!(kubectl.ok(&["logs", "ordered", "-c", "one"]), "first\nsecond\n");

    kubectl.wait_phase("args", "Succeeded");
    assert_eq!(kubectl.ok(&["logs", "args"]), "zero-one in /var/tmp\n");

    let done = kubectl.wait_phase("done", "Succeeded");
    assert_eq!(status(&done, "b")["state"]["terminated"]["exitCode"], 0);
    let broken = kubectl.wait_phase("broken", "Failed");
    assert_eq!(status(&broken, "a")["state"]["terminated"]["reason"], "Completed");
    assert_eq!(status(&broken, "b")["state"]["terminated"]["exitCode"], 3);
    assert_eq!(status(&broken, "b")["state"]["terminated"]["reason"], "Error");
    let up = kubectl.wait_pod("killed", 20, "runs", |pod| status(pod, "c")["state"]["running"].is_object());
    let id = container_id(&status(&up, "c"));
    signal(node.container_pids()[&id], "KILL");
    let killed = kubectl.wait_phase("killed", "Failed");
    assert_eq!(status(&killed, "c")["state"]["terminated"]["exitCode"], 137);
    let missing = kubectl.wait_phase("missing", "Failed");
    let end = status(&missing, "c")["state"]["terminated"].clone();
    assert!(end["message"].as_str().is_some_and(|text| text.contains("/no/such")), "{end}");
    assert_eq!(end["exitCode"], 128, "{end}");

    let second = kubectl.wait_phase("second", "Succeeded");
    assert_eq!(status(&second, "c")["restartCount"], 1);
    assert_eq!(status(&second, "c")["lastState"]["terminated"]["exitCode"], 4);

    let stuck = kubectl.wait_phase("stuck", "Failed");
    assert_eq!(status(&stuck, "i")["state"]["terminated"]["exitCode"], 6);
    assert_eq!(status(&stuck, "c")["state"]["waiting"]["reason"], "PodInitializing");

    let looping = kubectl
        .wait_pod("loop", 20, "backs off", |pod| status(pod, "c")["state"]["waiting"]["reason"] == "CrashLoopBackOff");
    let c = status(&looping, "c");
    assert_eq!(c["lastState"]["terminated"]["exitCode"], 5, "{c}");
    assert!(c["restartCount"].as_u64().is_some_and(|count| count >= 1), "{c}");
    assert_eq!(looping["status"]["phase"], "Running");
    kubectl.wait_pod("loop", 20, "restarts again", |pod| status(pod, "c")["restartCount"].as_u64() >= Some(2));
}
