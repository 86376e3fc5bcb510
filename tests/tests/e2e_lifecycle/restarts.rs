//! Restart policies and rules of single containers (K8s test/e2e/common/node/container_restart_policy.go).

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
use serde_json::{Value, json};

#[test]
fn containers_have_their_own_restart_policies() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("restarts");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let once = |name: &str, code: u8, policy: Value| {
        let script = format!("[ -e /v/{name} ] && exit 0; touch /v/{name}; exit {code}");
        let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        with(with(shell(name, &script), &mounts), &policy)
    };
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let by_rule = once("rule", 42, json!({"restartPolicy": "Never", "restartPolicyRules": rules}));
    let by_policy = once("policy", 1, json!({"restartPolicy": "OnFailure"}));
    let init = once("init", 3, json!({"restartPolicy": "OnFailure"}));
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    let both = with_spec(
        pod("both", &node.name, json!([by_rule, by_policy])),
        &json!({"restartPolicy": "Never", "volumes": volumes, "initContainers": [init]}),
    );
    let failing = with_spec(
        pod(
            "failing",
            &node.name,
            json!([once("rule", 7, json!({"restartPolicy": "Never", "restartPolicyRules": rules}))]),
        ),
        &json!({"restartPolicy": "Always", "volumes": volumes}),
    );
    kubectl.apply_all(&[both, failing]);
    let done = kubectl.wait_phase("both", "Succeeded");
    for list in ["containerStatuses", "initContainerStatuses"] {
        for status in done["status"][list].as_array().into_iter().flatten() {
            assert_eq!(status["restartCount"], 1, "{status}");
        }
    }
    let failed = kubectl.wait_phase("failing", "Failed");
    assert_eq!(failed["status"]["containerStatuses"][0]["restartCount"], 0, "{failed}");
}
