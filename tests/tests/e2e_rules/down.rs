//! Requests to devices: to the broker, to a server on the device, and authorization.

use std::process::Command;
use std::time::Duration;

use sampan_tests::can_run;
use sampan_tests::faults::Faults;
use sampan_tests::wait::until;
use serde_json::json;

use super::target::Target;
use super::{SOON, Site, end, rule};

struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Site {
    fn ask(&self, token: &str, method: &str, path: &str, more: &[&str]) -> Answer {
        let url = format!("https://{}/{}/{}{path}", self.rules, self.node.name, self.kubectl().namespace);
        let bearer = format!("authorization: Bearer {token}");
        let output = Command::new("curl")
            .args(["-sk", "-i", "--http1.1", "--max-time", "60", "-X", method, "-H", &bearer])
            .args(more)
            .arg(&url)
            .output()
            .expect("curl starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Answer { code, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn token(&self, account: &str) -> String {
        self.kubectl()
            .apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}).to_string());
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", self.kubectl().namespace);
        let file = self.cluster.folder().join("token-request.json");
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
        std::fs::write(&file, request.to_string()).expect("writes");
        let answer = self.kubectl().ok(&["create", "--raw", &path, "-f", &file.display().to_string()]);
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }
}

/// Which clients may send, what arrives, and the errors.
#[test]
fn requests_reach_brokers_and_servers_of_nodes() {
    if !can_run() {
        return;
    }
    let server = Target::start();
    let port = server.address.port().to_string();
    let mut site = Site::start_with("rules-down", &format!(", rules: {{ports: [{port}, 9], topics: ['led/#']}}"));
    let namespace = site.kubectl().namespace.clone();
    site.kubectl().apply_all(&[
        end("my-web", "servicebus", &json!({"service_port": port})),
        end("nothing", "servicebus", &json!({"service_port": "9"})),
        rule("led", ("my-rest", &json!({"path": "/led"})), ("my-bus", &json!({"topic": "led/set"}))),
        rule("api", ("my-rest", &json!({"path": "/api"})), ("my-web", &json!({"path": "/v1"}))),
        rule("own", ("my-rest", &json!({"path": "/own"})), ("my-bus", &json!({"topic": format!("{namespace}/led")}))),
        rule("other", ("my-rest", &json!({"path": "/other"})), ("my-bus", &json!({"topic": "other/led"}))),
        end("admin", "servicebus", &json!({"service_port": "22"})),
        rule("admin", ("my-rest", &json!({"path": "/admin"})), ("admin", &json!({"path": "/"}))),
        rule("gone", ("my-rest", &json!({"path": "/gone"})), ("nothing", &json!({"path": "/"}))),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "caller"}, "rules": [
            {"apiGroups": ["rules.kubeedge.io"], "resources": ["rules/proxy"], "verbs": ["create"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "caller"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "caller"},
            "subjects": [{"kind": "ServiceAccount", "name": "caller", "namespace": namespace}]}),
    ]);
    let (good, other) = (site.token("caller"), site.token("other"));
    let heard = site.broker.listen("led/#");

    // The rules are read, and the node's broker is connected.
    until(SOON, "the first message", || match site.ask(&good, "POST", "/led", &["-d", "{\"on\":1}"]) {
        Answer { code: 200, body, .. } if body == "message delivered" => Ok(()),
        Answer { code, body, .. } => Err(format!("{code} {body}")),
    });
    assert_eq!(heard.next("led/set"), json!({"on": 1}));
    assert_eq!(site.ask(&good, "POST", "/led/kitchen?x=y", &["-d", "{\"on\":2}"]).code, 200);
    assert_eq!(heard.next("led/set/kitchen"), json!({"on": 2}));
    let code = |token: &str, method: &str, path: &str| site.ask(token, method, path, &[]).code;
    assert_eq!(code("nonsense", "POST", "/led"), 401);
    assert_eq!(code(&other, "POST", "/led"), 403);
    assert_eq!((code(&good, "POST", "/nothing"), code(&good, "GET", "/led")), (404, 405));
    assert_eq!(code(&good, "POST", "/led/a%2B/+"), 400);
    // Ports that the node's configuration does not name.
    assert_eq!(code(&good, "POST", "/own"), 200);
    for (path, setting) in [("/other", "device-twin.rules.topics"), ("/admin", "device-twin.rules.ports")] {
        let answer = site.ask(&good, "POST", path, &["-d", "1"]);
        assert!(answer.code == 403 && answer.body.contains(setting), "{path}: {} {}", answer.code, answer.body);
    }
    let big = site.cluster.folder().join("big");
    std::fs::write(&big, vec![b'x'; 1 << 20]).expect("writes");
    assert_eq!(site.ask(&good, "POST", "/led", &["--data-binary", &format!("@{}", big.display())]).code, 413);

    // A server on the device, whose answer is returned unchanged.
    server.answer("418 I'm a teapot", "x-tea: green\r\n", "short and stout");
    let answer = site.ask(&good, "PUT", "/api/pot?lid=on", &["-H", "x-own: 1", "-d", "water"]);
    assert_eq!((answer.code, &*answer.body), (418, "short and stout"));
    assert!(answer.head.contains("x-tea: green"), "{}", answer.head);
    let request = server.requests().pop().expect("it was asked");
    assert_eq!((&*request.line, &*request.body), ("PUT /v1/pot?lid=on HTTP/1.1", "water"));
    assert_eq!((request.header("x-own"), request.header("authorization")), (Some("1"), None));
    assert_eq!(server.requests().len(), 1, "once");
    let long = "y".repeat(300 << 10);
    server.answer("200 OK", "", &long);
    assert_eq!(site.ask(&good, "GET", "/api", &[]).body, long);
    assert_eq!(code(&good, "GET", "/gone"), 502);

    // Without a broker nothing is delivered, and the answer is an error.
    site.broker.stop();
    until(SOON, "no broker", || match site.ask(&good, "POST", "/led", &["-d", "1"]) {
        Answer { code: 503, head, .. } if head.contains("retry-after: ") => Ok(()),
        Answer { code, body, .. } => Err(format!("{code} {body}")),
    });
    // The same without a node.
    site.line.set(Faults { refuse: true, ..Faults::default() });
    site.line.cut();
    until(SOON, "no node", || match site.ask(&good, "GET", "/api", &[]) {
        Answer { code: 503, .. } => Ok(()),
        Answer { code, body, .. } => Err(format!("{code} {body}")),
    });
    until(Duration::from_secs(30), "the status of a rule", || {
        let status = site.kubectl().get("rule", "api")?["status"].clone();
        let told = status["successMessages"].as_u64() >= Some(2) && status["failMessages"].as_u64() >= Some(1);
        if told { Ok(()) } else { Err(status.to_string()) }
    });
}

/// The definitions check what KubeEdge's webhook checks.
#[test]
fn rules_that_cannot_work_are_refused_or_say_why() {
    if !can_run() {
        return;
    }
    let site = Site::start("rules-bad");
    let kubectl = site.kubectl();
    let (path, topic) = (json!({"path": "/a"}), json!({"topic": "t", "node_name": "n"}));
    for bad in [
        end("e", "pigeon", &json!({})),
        end("e", "servicebus", &json!({})),
        end("e", "servicebus", &json!({"service_port": "x"})),
        rule("r", ("a", &json!({"topic": "t"})), ("b", &json!({"resource": "http://a"}))),
        rule("r", ("a", &topic), ("b", &json!({"topic": "t"}))),
        rule("r", ("a", &json!({"target_url": "http://a"})), ("b", &json!({"resource": "http://a"}))),
        rule("r", ("a", &json!({"target_url": "http://a", "node_name": "n"})), ("b", &json!({"path": "/a"}))),
        rule("r", ("a", &topic), ("b", &json!({"resource": "ftp://a"}))),
        rule("r", ("a", &path), ("b", &json!({"resource": "http://a"}))),
        rule("", ("a", &path), ("", &json!({"topic": "t"}))),
    ] {
        assert!(kubectl.try_apply(&bad.to_string()).is_err(), "{bad}");
    }
    kubectl.apply(&rule("r", ("nobody", &path), ("my-bus", &json!({"topic": "t"}))).to_string());
    until(Duration::from_secs(30), "what is wrong", || {
        let errors = kubectl.get("rule", "r")?["status"]["errors"].to_string();
        if errors.contains("no source RuleEndpoint") { Ok(()) } else { Err(errors) }
    });
}
