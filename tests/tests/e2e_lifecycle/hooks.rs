//! `postStart` and `preStop`: commands, HTTP, pauses (test/e2e/common/node/lifecycle_hook.go).

use std::fs::read_to_string;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

use crate::{events, status};

fn hooked(name: &str, script: &str, lifecycle: &Value) -> Value {
    let more = json!({"lifecycle": lifecycle, "volumeMounts": [{"name": "notes", "mountPath": "/notes"}]});
    with(shell(name, script), &more)
}

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

#[test]
fn hooks_run_at_both_ends_of_a_container() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hooks");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    let volumes = |grace: u32| json!({"terminationGracePeriodSeconds": grace, "volumes": [host_path("notes", &notes)]});
    let make = |name: &str, grace: u32, all: Value| with_spec(pod(name, on, all), &volumes(grace));
    let wait = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let serve = "mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho \"$QUERY_STRING\" >>/notes/web\\necho; echo\\n' \
                 >/www/cgi-bin/h; chmod +x /www/cgi-bin/h; httpd -f -p 80 -h /www & trap 'exit 0' TERM; wait";
    let get = |what: &str, scheme: &str| json!({"httpGet": {"path": format!("/cgi-bin/h?{what}"), "port": 80, "scheme": scheme}});
    let server = with(
        hooked("web", serve, &json!({})),
        &json!({"startupProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1}, "restartPolicy": "Always"}),
    );
    let mut web = make(
        "web",
        20,
        json!([hooked("c", wait, &json!({"postStart": get("poststart", "HTTP"), "preStop": get("prestop", "HTTPS")}))]),
    );
    web["spec"]["initContainers"] = json!([server]);
    kubectl.apply_all(&[
        make(
            "exec",
            20,
            json!([
                hooked(
                    "c",
                    wait,
                    &json!({"postStart": exec("until [ -e /notes/go ]; do sleep 0.05; done; echo started >>/notes/exec"),
                            "preStop": exec("echo ending >>/notes/exec")})
                ),
                shell("behind", wait),
            ]),
        ),
        web,
        make("fails", 2, json!([hooked("c", wait, &json!({"postStart": exec("echo sorry; exit 7")}))])),
        make("pause", 20, json!([hooked("c", wait, &json!({"preStop": {"sleep": {"seconds": 2}}}))])),
        make("slow", 2, json!([hooked("c", wait, &json!({"preStop": exec("sleep 100")}))])),
        make("refused", 9, json!([hooked("c", wait, &json!({"preStop": {"httpGet": {"path": "/", "port": 81}}}))])),
        with_spec(
            make("own-end", 20, json!([hooked("c", "sleep 1", &json!({"preStop": {"sleep": {"seconds": 15}}}))])),
            &json!({"restartPolicy": "Never"}),
        ),
    ]);

    // While the hook runs, its container and the later ones have not started according to the API.
    let web = kubectl.wait_ready("web");
    let conditions = web["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let good: Vec<_> = conditions.iter().filter(|one| one["status"] == "True" && !one["reason"].is_null()).collect();
    assert!(good.is_empty(), "what was wrong is no longer said: {good:?}");
    let held = kubectl.get("pod", "exec").expect("a pod");
    for name in ["c", "behind"] {
        assert_eq!(status(&held, name)["state"]["waiting"]["reason"], "ContainerCreating", "{}", held["status"]);
    }
    std::fs::write(notes.join("go"), "").expect("a file");
    kubectl.wait_ready("exec");
    assert_eq!(read_to_string(notes.join("exec")).expect("notes"), "started\n");
    assert_eq!(read_to_string(notes.join("web")).expect("notes"), "poststart\n");

    let failed = kubectl
        .wait_pod("fails", 20, "backs off", |pod| status(pod, "c")["state"]["waiting"]["reason"] == "CrashLoopBackOff");
    assert_eq!(failed["status"]["phase"], "Running");
    let wanted = ["FailedPostStartHook: PostStartHook failed", "Killing: FailedPostStartHook"].map(str::to_owned);
    let said = until(Duration::from_secs(20), "the events of the hook", || {
        let said = events(kubectl, "fails");
        if wanted.iter().all(|event| said.contains(event)) { Ok(said) } else { Err(format!("{said:?}")) }
    });
    assert!(!said.iter().any(|event| event.contains("sorry")), "what a hook says is no event: {said:?}");

    let done = kubectl.wait_phase("own-end", "Succeeded");
    assert_eq!(status(&done, "c")["state"]["terminated"]["exitCode"], 0);

    for name in ["pause", "slow", "refused"] {
        kubectl.wait_ready(name);
    }
    let begin = Instant::now();
    let _ = kubectl.ok(&["delete", "pod", "exec", "web", "pause", "slow", "refused", "--wait=false"]);
    kubectl.wait_gone("pod", "exec", 15);
    assert_eq!(read_to_string(notes.join("exec")).expect("notes"), "started\nending\n");
    kubectl.wait_gone("pod", "web", 15);
    assert_eq!(read_to_string(notes.join("web")).expect("notes"), "poststart\nprestop\n");
    until(Duration::from_secs(20), "the event of the fallback", || {
        let said = events(kubectl, "web");
        if said.iter().any(|event| event.starts_with("LifecycleHTTPFallback: ")) {
            Ok(())
        } else {
            Err(format!("{said:?}"))
        }
    });
    kubectl.wait_gone("pod", "slow", 10);
    kubectl.wait_gone("pod", "pause", 10);
    assert!(begin.elapsed() >= Duration::from_secs(2), "the pauses were made");
    kubectl.wait_gone("pod", "refused", 10);
    // One exceeded its pod's grace period, the other got no answer.
    for name in ["slow", "refused"] {
        until(Duration::from_secs(10), "the event of a hook that failed", || {
            let said = events(kubectl, name);
            let told = said.contains(&"FailedPreStopHook: PreStopHook failed".to_owned());
            if told { Ok(()) } else { Err(format!("{said:?}")) }
        });
    }
    assert!(!events(kubectl, "pause").iter().any(|event| event.starts_with("FailedPreStopHook")));
    until(Duration::from_secs(5), "no command of a hook is left", || {
        let left = std::fs::read_dir(node.root().join("run/edge-runtime/exec")).map_or(0, Iterator::count);
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    });
}
