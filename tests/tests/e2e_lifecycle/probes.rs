//! Special probes: gRPC, HTTPS, redirects, and probes during the termination of a pod
//! (test/e2e/common/node/container_probe.go).

use sampan_tests::kubectl::is_ready;
use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
use serde_json::{Value, json};

use crate::{events, status};

/// The answer of a gRPC server (grpcio 1.85) to a health check, in octal for `printf`: settings, headers, the message
/// with its status, trailers.
fn grpc_answer(status: u8) -> String {
    let hex = format!(
        "0000180400000000000004004000000005004000000006000040 00fe030000000100000408 0000000000003f0001 000000040100000000 \
         00004f0104000000012088400c636f6e74656e742d74797065106170706c69636174696f6e2f677270634014677270632d6163636570742d\
         656e636f64696e67176964656e746974792c206465666c6174652c20677a6970 000007000000000001 000000000208{status:02x} \
         00001e010500000001400b677270632d7374617475730130000c677270632d6d65737361676500"
    );
    let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex");
    digits.chunks(2).map(|pair| format!("\\{:03o}", byte(pair))).collect()
}

/// Answers every connection with the same bytes, until it is stopped.
fn server(answer: &str) -> String {
    format!(
        "printf '{answer}' >/tmp/answer; printf '#!/bin/sh\\ncat /tmp/answer; sleep 0.2\\n' >/tmp/serve; \
         chmod +x /tmp/serve; nc -ll -p 5000 -e /tmp/serve & trap 'exit 0' TERM; wait"
    )
}

#[test]
fn probes_of_every_kind_decide() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("probing");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let probed = |name: &str, script: &str, probes: &Value| pod(name, on, json!([with(shell("c", script), probes)]));
    let every = |more: &Value| with(json!({"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 2}), more);
    let grpc = json!({"readinessProbe": every(&json!({"grpc": {"port": 5000, "service": "x"}}))});
    let elsewhere = "HTTP/1.1 302 Found\\r\\nLocation: http://192.0.2.1/\\r\\nContent-Length: 4\\r\\n\\r\\nbody";
    let here = "HTTP/1.1 302 Found\\r\\nLocation: /\\r\\nContent-Length: 0\\r\\n\\r\\n";
    let get =
        json!({"livenessProbe": every(&json!({"httpGet": {"port": 5000, "path": "/"}, "initialDelaySeconds": 1}))});
    // The container ignores SIGTERM: only the probe's own grace period ends it soon.
    let patient = json!({"livenessProbe": every(&json!({
        "exec": {"command": ["false"]}, "initialDelaySeconds": 1, "terminationGracePeriodSeconds": 2}))});
    let ending = json!({
        "readinessProbe": every(&json!({"exec": {"command": ["cat", "/tmp/ready"]}})),
        "livenessProbe": every(&json!({"exec": {"command": ["cat", "/tmp/ready"]}, "initialDelaySeconds": 1})),
    });
    kubectl.apply_all(&[
        probed("serving", &server(&grpc_answer(1)), &grpc),
        probed("not-serving", &server(&grpc_answer(2)), &grpc),
        probed("elsewhere", &server(elsewhere), &get),
        probed("circle", &server(here), &get),
        with_spec(
            probed("patient", "trap '' TERM; while :; do sleep 0.1; done", &patient),
            &json!({"terminationGracePeriodSeconds": 100}),
        ),
        with_spec(
            probed(
                "ending",
                "touch /tmp/ready; trap 'rm /tmp/ready; sleep 6; exit 0' TERM; while :; do sleep 0.1; done",
                &ending,
            ),
            &json!({"terminationGracePeriodSeconds": 30}),
        ),
    ]);
    kubectl.wait_ready("ending");
    let _ = kubectl.ok(&["delete", "pod", "ending", "--wait=false"]);
    let unready = kubectl.wait_pod("ending", 6, "not Ready while it ends", |pod| !is_ready(pod));
    assert!(status(&unready, "c")["state"]["running"].is_object(), "{}", unready["status"]);

    kubectl.wait_ready("serving");
    let said = |pod: &str, text: &str| {
        sampan_tests::until(std::time::Duration::from_secs(15), &format!("{pod}: {text}"), || {
            let all = events(kubectl, pod);
            if all.iter().any(|event| event.contains(text)) { Ok(()) } else { Err(format!("{all:?}")) }
        });
    };
    said("not-serving", "Unhealthy: Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")");
    assert!(!is_ready(&kubectl.get("pod", "not-serving").expect("a pod")));
    said("elsewhere", "ProbeWarning: Liveness probe warning: Probe terminated redirects, Response body: body");
    assert_eq!(status(&kubectl.get("pod", "elsewhere").expect("a pod"), "c")["restartCount"], 0);
    said("circle", "stopped after 10 redirects");
    for name in ["circle", "patient"] {
        kubectl.wait_pod(name, 20, "is restarted", |pod| status(pod, "c")["restartCount"].as_u64() >= Some(1));
    }
    kubectl.wait_gone("pod", "ending", 15);
    let all = events(kubectl, "ending");
    assert!(!all.iter().any(|event| event.contains("failed liveness probe")), "{all:?}");
}
