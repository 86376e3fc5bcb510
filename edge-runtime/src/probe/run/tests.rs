//! Handlers by table; exec through a stand-in for the container, since only its contract matters here.

use serde_json::{Value, json};

use super::*;

fn probe(spec: Value) -> Probe {
    serde_json::from_value(spec).unwrap()
}

fn container() -> Container {
    serde_json::from_value(json!({
        "name": "c",
        "ports": [{"name": "web", "containerPort": 8080}],
        "env": [{"name": "A", "value": "1"}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }))
    .unwrap()
}

fn make(spec: Value, answer: Result<(i32, &'static str), &'static str>) -> Outcome {
    let exec: ExecProbe = Rc::new(move |_, argv, _| {
        Box::pin(async move {
            if argv == ["sleep"] {
                smol::Timer::never().await;
            }
            answer.map(|(code, out)| (code, out.as_bytes().to_vec())).map_err(str::to_owned)
        })
    });
    let subject = Subject { id: "id", container: "c", address: IpAddr::from([127, 0, 0, 1]) };
    let probe = prepared(&probe(spec), &container());
    smol::block_on(round(&probe, &subject, Duration::from_millis(200), &Means { exec, tls: http::tls_config() }))
}

#[test]
fn commands_are_judged_by_their_exit_code() {
    let run = |answer| make(json!({"exec": {"command": ["x"]}}), answer);
    assert_eq!(run(Ok((0, "fine"))), Outcome::Success);
    assert_eq!(run(Ok((1, "bad"))), Outcome::Failure("bad".into()));
    assert_eq!(run(Err("no such container")), Outcome::Error("no such container".into()));
    assert!(matches!(run(Err("command timed out after 1s")), Outcome::Failure(_)));
    let late = make(json!({"exec": {"command": ["sleep"]}}), Ok((0, "")));
    assert_eq!(late, Outcome::Failure("command timed out: \"sleep\" timed out after 0s".into()));
}

#[test]
fn names_are_filled_in() {
    let p = prepared(&probe(json!({"httpGet": {"port": "web"}})), &container());
    assert_eq!(p.http_get.unwrap().port, IntOrString::Int(8080));
    let p = prepared(&probe(json!({"exec": {"command": ["$(A)", "$(F)", "$(NO)", "$$(A)"]}})), &container());
    assert_eq!(p.exec.unwrap().command.unwrap(), ["1", "", "$(NO)", "$(A)"]);
}

#[test]
fn sockets() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tcp = |port: Value| make(json!({"tcpSocket": {"port": port}}), Ok((0, "")));
    assert_eq!(tcp(json!(port)), Outcome::Success);
    assert_eq!(tcp(json!(port.to_string())), Outcome::Success);
    drop(listener);
    let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(tcp(json!(port)), Outcome::Failure(refused));
    assert_eq!(tcp(json!("nope")), Outcome::Error("couldn't find port: nope for container c".into()));
    assert_eq!(tcp(json!(0)), Outcome::Error("invalid port number: 0".into()));
    let named = make(json!({"tcpSocket": {"host": "no..name", "port": 1}}), Ok((0, "")));
    assert_eq!(named, Outcome::Failure("dial tcp: lookup \"no..name\" is not a host name".into()));
}

#[test]
fn silent_server_is_a_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let outcome = make(json!({"httpGet": {"port": port}}), Ok((0, "")));
    let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    assert_eq!(outcome, Outcome::Failure(format!("Get \"http://127.0.0.1:{port}/\": {late}")));
    let nowhere = make(json!({"httpGet": {"port": port, "host": "no..name"}}), Ok((0, "")));
    let unknown = format!("Get \"http://no..name:{port}/\": dial tcp: lookup \"no..name\" is not a host name");
    assert_eq!(nowhere, Outcome::Failure(unknown), "a failure, as the lookup is part of the request");
}
