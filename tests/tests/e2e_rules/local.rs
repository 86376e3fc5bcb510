//! Requests of programs on the device: to an HTTP server beside the bridge and back, and what is said when they cannot.

use std::process::Command;
use std::time::Duration;

use sampan_tests::can_run;
use sampan_tests::faults::Faults;
use sampan_tests::ports::free_address;
use sampan_tests::process::signal;
use sampan_tests::wait::until;
use serde_json::{Value, json};

use super::target::Target;
use super::{SOON, Site, end, rule};

/// Status and body of what a program on the device is answered.
fn ask(address: &str, url: &str) -> (u16, Value) {
    let request = json!({"method": "POST", "targetURL": url, "payload": {"line": 3}}).to_string();
    let mut command = Command::new("curl");
    command.args(["-s", "--max-time", "60", "-w", "\n%{http_code}", "-d", &request]).arg(format!("http://{address}/"));
    let output = command.output().expect("curl starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').unwrap_or_default();
    (code.parse().unwrap_or(0), serde_json::from_str(body).unwrap_or_default())
}

/// Road 4, like KubeEdge's servicebus: the program gets the target's answer, or the reason of the failure.
#[test]
fn programs_on_the_device_ask_by_rules_and_are_told_the_truth() {
    if !can_run() {
        return;
    }
    let address = free_address().to_string();
    let mut site = Site::start_with("rules-local", &format!(", servicebus: {{address: '{address}'}}"));
    let target = Target::start();
    target.answer("201 Created", "", "{\"recipe\":7}");
    let asked = "http://recipes/next";
    let (node, resource) = (site.node.name.clone(), format!("http://{}/in?x=y", target.address));
    site.kubectl().apply_all(&[
        end("my-servicebus", "servicebus", &json!({"service_port": "6666"})),
        rule(
            "recipes",
            ("my-servicebus", &json!({"target_url": asked, "node_name": node})),
            ("my-rest", &json!({"resource": resource})),
        ),
        rule(
            "others",
            ("my-servicebus", &json!({"target_url": "http://other", "node_name": "somebody-else"})),
            ("my-rest", &json!({"resource": resource})),
        ),
    ]);
    let body = until(SOON, "the first answer", || match ask(&address, asked) {
        (200, body) => Ok(body),
        other => Err(format!("{other:?}")),
    });
    let wanted = json!({"code": 201, "msg": "receive response from cloud successfully", "body": "{\"recipe\":7}"});
    assert_eq!(body, wanted);
    let request = target.requests().remove(0);
    assert_eq!((&*request.line, request.header("x-sampan-node")), ("POST /in?x=y HTTP/1.1", Some(&*node)));
    let sent: Value = serde_json::from_str(&request.body).expect("JSON");
    assert_eq!((&sent["targetURL"], &sent["payload"]["line"]), (&json!(asked), &json!(3)), "as it was sent");
    assert_eq!(ask(&address, "http://other").0, 400, "another node's rule");

    // What the target says is told, and nothing is tried twice.
    let before = target.requests().len();
    target.answer("503 Service Unavailable", "", "busy");
    let (code, body) = ask(&address, asked);
    assert_eq!((code, &body["code"], &body["body"]), (503, &json!(503), &json!("busy")));
    target.answer("302 Found", "location: http://127.0.0.1/\r\n", "");
    assert_eq!(ask(&address, asked).0, 502);
    assert_eq!(target.requests().len(), before + 2);
    target.answer("200 OK", "", "fine");

    // No line: nothing is done, now or later.
    site.line.set(Faults { refuse: true, ..Faults::default() });
    site.line.cut();
    let before = until(SOON, "no line", || match ask(&address, asked) {
        (503, body) if body["msg"] == "there is no link to the cloud" => Ok(target.requests().len()),
        other => Err(format!("{other:?}")),
    });
    site.line.set(Faults::default());
    let served = |site: &Site, what: &str| {
        until(Duration::from_secs(40), what, || match ask(&address, asked) {
            (200, body) if body["body"] == "fine" => Ok(()),
            other => Err(format!("{other:?}, {}", site.node.name)),
        });
    };
    served(&site, "the line again");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(target.requests().len(), before + 1, "what was refused was not done later");

    // It continues after either process is killed.
    let helper = super::up::helper(&site).expect("the helper runs");
    signal(helper, "KILL");
    served(&site, "another helper");
    site.node.kill();
    site.node.start();
    served(&site, "another daemon");
    site.cluster.kill_bridge();
    site.cluster.start_bridge();
    served(&site, "another bridge");

    // D1: not configured, it is not there.
    site.node.kill();
    site.configure("");
    site.node.start();
    until(SOON, "nobody listens", || {
        std::net::TcpStream::connect(&address).map_or_else(|_| Ok(()), |_| Err("somebody does".to_owned()))
    });
}
