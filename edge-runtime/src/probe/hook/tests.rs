//! Hooks against a real server on loopback; commands through a stand-in, since only its contract matters here.

use std::rc::Rc;

use serde_json::{Value, json};
use smol::Async;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use super::super::run::ExecProbe;
use super::*;

fn call(handler: Value) -> HookCall {
    HookCall {
        handler: serde_json::from_value(handler).unwrap(),
        container: serde_json::from_value(json!({"name": "c"})).unwrap(),
        id: "id".into(),
        pod: "p_ns(u)".into(),
        address: IpAddr::from([127, 0, 0, 1]),
        limit: None,
    }
}

fn make(handler: Value, code: i32) -> HookDone {
    let exec: ExecProbe = Rc::new(move |_, _, _| Box::pin(async move { Ok((code, b"said\n".to_vec())) }));
    smol::block_on(run(&call(handler), &Means { exec, tls: http::tls_config() }))
}

#[test]
fn commands_by_their_exit_code() {
    let command = json!({"exec": {"command": ["sh", "-c", "x"]}});
    assert_eq!(make(command.clone(), 0), HookDone::default());
    let text = "Exec lifecycle hook ([sh -c x]) for Container \"c\" in Pod \"p_ns(u)\" failed - \
                error: command 'sh -c x' exited with 3: said\n, message: \"said\\n\"";
    assert_eq!(make(command, 3).error.as_deref(), Some(text));
}

#[test]
fn no_pause_is_a_pause() {
    assert_eq!(make(json!({"sleep": {"seconds": 0}}), 0), HookDone::default());
}

#[test]
fn any_answer_is_good_and_plain_http_will_do() {
    let listener = Async::<std::net::TcpListener>::bind(([127, 0, 0, 1], 0)).unwrap();
    let port = listener.get_ref().local_addr().unwrap().port();
    let exec: ExecProbe = Rc::new(|_, _, _| Box::pin(async { Err("not asked".to_owned()) }));
    let serve = async {
        let mut asked = Vec::new();
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = vec![0; 4096];
            let n = stream.read(&mut seen).await.unwrap();
            asked.push(String::from_utf8_lossy(&seen[..n]).into_owned());
            stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
        asked
    };
    let headers = json!([{"name": "Authorization", "value": "x"}, {"name": "A", "value": "b"}]);
    let get = |scheme: &str| {
        call(json!({"httpGet": {"port": port, "path": "/p?q", "scheme": scheme, "httpHeaders": headers}}))
    };
    let hooks = async {
        let means = Means { exec, tls: http::tls_config() };
        (run(&get("HTTP"), &means).await, run(&get("HTTPS"), &means).await)
    };
    let ((plain, secure), asked) = smol::block_on(smol::future::zip(hooks, serve));
    assert_eq!(plain, HookDone::default());
    let host = format!("127.0.0.1:{port}");
    let fallback = format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded");
    assert_eq!(secure, HookDone { error: None, fallback: Some(fallback) });
    assert!(asked[0].starts_with("GET /p?q HTTP/1.1\r\n") && asked[0].contains("User-Agent: kube-lifecycle/"));
    assert!(asked[0].contains("Authorization: x") && !asked[2].contains("Authorization") && asked[2].contains("A: b"));
}

#[test]
fn refused_connection_is_a_failure() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = make(json!({"httpGet": {"port": port, "path": "/p"}}), 0).error.unwrap();
    assert!(error.starts_with("HTTP lifecycle hook (/p) for Container \"c\" in Pod \"p_ns(u)\" failed - error: Get"));
    assert!(error.ends_with("connection refused"), "{error}");
}
