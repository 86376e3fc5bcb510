//! Requests for rules at a bridge that does not have the node: the one that has it answers.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use sampan_tests::ports::free_address;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

use crate::kubelet::token;
use crate::target::Target;
use crate::{bridge, kubeconfig, replica_of};

/// What is answered at a bridge.
struct Answer {
    code: u16,
    head: String,
    body: String,
}

fn ask(rules: SocketAddr, path: &str, token: &str, more: &[&str]) -> Answer {
    let bearer = format!("authorization: Bearer {token}");
    let mut command = Command::new("curl");
    command.args(["-sk", "-i", "--http1.1", "--max-time", "60", "-H", &bearer]).args(more);
    let output = command.arg(format!("https://{rules}{path}")).output().expect("curl starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Answer { code, head: head.to_lowercase(), body: body.to_owned() }
}

/// Kinds, one rule that leads to a port of the node, and who may use it.
fn prepare(cluster: &Cluster, port: u16) {
    let kubectl = &cluster.kubectl;
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/bridge/rules/crds.yaml");
    let _ = kubectl.ok(&["apply", "-f", definitions]);
    let names = ["rules", "ruleendpoints"].map(|name| format!("crd/{name}.rules.kubeedge.io"));
    let wait = ["wait", "--for=condition=Established", "--timeout=30s"];
    let _ = kubectl.ok(&wait.into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>());
    let end = |name: &str, kind: &str, properties: Value| {
        json!({"apiVersion": "rules.kubeedge.io/v1", "kind": "RuleEndpoint", "metadata": {"name": name},
            "spec": {"ruleEndpointType": kind, "properties": properties}})
    };
    let group = "rbac.authorization.k8s.io";
    kubectl.apply_all(&[
        end("my-rest", "rest", json!({})),
        end("my-web", "servicebus", json!({"service_port": port.to_string()})),
        json!({"apiVersion": "rules.kubeedge.io/v1", "kind": "Rule", "metadata": {"name": "api"}, "spec": {
            "source": "my-rest", "sourceResource": {"path": "/api"}, "target": "my-web", "targetResource": {"path": "/v1"}}}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "caller"}, "rules": [
            {"apiGroups": ["rules.kubeedge.io"], "resources": ["rules/proxy"], "verbs": ["create"]}]}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "caller"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "caller"},
            "subjects": [{"kind": "ServiceAccount", "name": "caller", "namespace": kubectl.namespace}]}),
    ]);
    for account in ["caller", "stranger"] {
        let _ = kubectl.ok(&["create", "serviceaccount", account]);
    }
}

#[test]
fn a_request_for_a_node_of_another_bridge_is_answered_by_that_one() {
    if !can_run() || Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let cluster = Cluster::start("bridges-rules");
    let server = Target::start();
    server.answer("418 I'm a teapot", "x-tea: green\r\n", "short and stout");
    prepare(&cluster, server.address.port());
    let rules = [free_address(), free_address()];
    let [mut one, two] = [(5, rules[0]), (6, rules[1])].map(|(number, rules)| {
        let of_rules = ["--rules-listen", &rules.to_string(), "--rules-address", &rules.ip().to_string()];
        replica_of(&cluster, number, None, &of_rules)
    });
    let name = format!("asked-{}", cluster.kubectl.namespace);
    let join = bridge(&["token", "create", &name], &kubeconfig(&cluster));
    let join = join.split_whitespace().find(|word| word.starts_with("sampan1.")).expect("a token").to_owned();
    let urls = [one.listen, two.listen].map(|address| format!("https://{address}"));
    let mut node = EdgeNode::bare(&cluster, &name);
    let port = server.address.port();
    node.configure(&format!("device-twin: {{rules: {{ports: [{port}]}}}}\n"));
    node.edge_ok(&["join", "--bridge", &urls[0], "--bridge", &urls[1], "--token", &join, "--node", &name]);
    node.start();
    node.wait_ready();
    let (good, stranger) = (token(&cluster, "caller"), token(&cluster, "stranger"));
    let path = format!("/{name}/{}/api/pot?lid=on", cluster.kubectl.namespace);
    let served = |rules: SocketAddr, what: &str| {
        until(Duration::from_secs(60), what, || match ask(rules, &path, &good, &["-X", "PUT", "-d", "water"]) {
            Answer { code: 418, head, body } if body == "short and stout" && head.contains("x-tea: green") => Ok(()),
            Answer { code, body, .. } => Err(format!("{code} {body}")),
        });
    };
    served(rules[0], "the bridge that has the node answers");
    served(rules[1], "and the other one, by it");
    let request = server.requests().pop().expect("it was asked");
    assert_eq!((&*request.line, &*request.body), ("PUT /v1/pot?lid=on HTTP/1.1", "water"));
    assert_eq!((request.header("x-sampan-forwarded"), request.header("authorization")), (None, None));
    let asked = server.requests().len();
    assert_eq!(ask(rules[1], &path, &good, &[]).code, 418);
    assert_eq!(server.requests().len(), asked + 1, "once");

    // The right is asked for at both, and what was passed on once goes no further.
    assert_eq!(ask(rules[1], &path, &stranger, &[]).code, 403);
    assert_eq!(ask(rules[1], &path, "nonsense", &[]).code, 401);
    let again = ask(rules[1], &path, &good, &["-H", "X-Sampan-Forwarded: 1"]);
    assert!(again.code == 503 && again.head.contains("retry-after"), "{} {}", again.code, again.body);
    let object = cluster.kubectl.get("node", &name).expect("the node");
    assert_eq!(object["metadata"]["annotations"]["sampan.dev/rules-address"], rules[0].to_string());

    // No bridge can forward it: nothing was done, and the answer says so. Then the node is at the other bridge.
    let asked = server.requests().len();
    node.kill();
    one.process.kill();
    until(Duration::from_secs(30), "it is said that the bridge is not there", || {
        let answer = ask(rules[1], &path, &good, &[]);
        let told = answer.code == 503 && answer.head.contains("retry-after");
        if told { Ok(()) } else { Err(format!("{} {}", answer.code, answer.body)) }
    });
    assert_eq!(server.requests().len(), asked);
    node.start();
    served(rules[1], "the node has moved");
    let object = cluster.kubectl.get("node", &name).expect("the node");
    assert_eq!(object["metadata"]["annotations"]["sampan.dev/rules-address"], rules[1].to_string());
    let of_rules = ["--rules-listen", &rules[0].to_string(), "--rules-address", &rules[0].ip().to_string()];
    let _third = replica_of(&cluster, 7, None, &of_rules);
    served(rules[0], "a bridge that is new passes on, too");
}
