//! Programs on the device and their requests for rules, at the real helper with a daemon that the test plays.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use sampan_devices_control::{FromHelper, Kind, Servicebus, Settings, ToHelper};
use serde_json::{Value, json};
use support::{Helper, PATIENCE, free_port};

const URL: &str = "http://example.com/a";
const ASKED: &str = r#"{"method":"POST","targetURL":"http://example.com/a","payload":{"x":1}}"#;

/// A helper that listens for programs, with one rule for them.
fn lab() -> (Helper, u16) {
    let port = free_port();
    let servicebus = Some(Servicebus { address: format!("127.0.0.1:{port}") });
    let mut helper = Helper::start(&Settings { servicebus, ..Settings::default() });
    helper.object(Kind::Rule, "r", "rule-1", json!({"targetUrl": URL}));
    helper.told();
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < PATIENCE, "nobody listens");
        sleep(Duration::from_millis(20));
    }
    (helper, port)
}

fn call(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A refused client sees that when it reads.
    let _ = stream.write_all(bytes);
    stream
}

fn post(body: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Status, head and what is in the body.
fn answer(mut stream: TcpStream) -> (u16, String, Value) {
    let mut text = String::new();
    // Bytes before the end count.
    let _ = stream.read_to_string(&mut text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or_default())
}

fn ask(port: u16) -> JoinHandle<(u16, String, Value)> {
    spawn(move || answer(call(port, &post(ASKED))))
}

/// The next request that the daemon is given.
fn request(helper: &Helper) -> (u64, Value) {
    loop {
        if let FromHelper::Request { id, request } = helper.next() {
            return (id, request);
        }
    }
}

/// Until the helper has taken all that was said before this.
fn settle(helper: &mut Helper) {
    helper.say(&ToHelper::Call { id: 1, call: json!({"dance": {}}) });
    while !matches!(helper.next(), FromHelper::Called { .. }) {}
}

fn respond(helper: &mut Helper, id: u64, status: u16, text: &str) {
    // As base64 the words are sent by the bridge.
    let result = edge_protocol::message::CallResult::Http { status, headers: vec![], body: text.into() };
    helper.say(&ToHelper::Response { id, response: serde_json::to_value(result).unwrap() });
}

#[test]
fn a_program_is_told_what_the_target_says_and_what_hinders_it() {
    let (mut helper, port) = lab();
    let asked = ask(port);
    let (id, sent) = request(&helper);
    let sent: edge_protocol::message::RuleRequest = serde_json::from_value(sent).unwrap();
    assert_eq!((&*sent.rule, &*sent.body), ("rule-1", ASKED.as_bytes()), "as it was sent");
    respond(&mut helper, id, 201, "made");
    let (status, head, body) = asked.join().unwrap();
    assert_eq!(status, 200, "{head}");
    assert_eq!(body, json!({"code": 201, "msg": "receive response from cloud successfully", "body": "made"}));

    let asked = ask(port);
    let (id, _) = request(&helper);
    respond(&mut helper, id, 404, "no such thing");
    let (status, _, body) = asked.join().unwrap();
    assert_eq!((status, &body["code"], &body["body"]), (404, &json!(404), &json!("no such thing")));

    // These requests do not reach the daemon.
    let other = r#"{"targetURL":"http://example.com/b"}"#;
    let (status, _, body) = answer(call(port, &post(other)));
    assert_eq!(status, 400);
    let why = "url http://example.com/b is not allowed and please make a rule for this url in the cloud";
    assert_eq!(body["msg"], why);
    assert_eq!(answer(call(port, &post("[]"))).2["msg"], "invalid params");
    assert_eq!(answer(call(port, b"GET / HTTP/1.1\r\n\r\n")).0, 405);
    let browser = [b"POST / HTTP/1.1\r\nOrigin: null\r\nContent-Length: 70\r\n\r\n", ASKED.as_bytes()].concat();
    assert_eq!(answer(call(port, &browser)).0, 403);

    // Cut while it is under way: it may have been done. Then: it was not.
    let asked = ask(port);
    let (late, _) = request(&helper);
    helper.say(&ToHelper::Link { up: false, clock_set: true });
    assert_eq!(asked.join().unwrap().0, 502);
    let (status, head, _) = ask(port).join().unwrap();
    assert!(status == 503 && head.contains("retry-after: 5"), "{status} {head}");
    helper.say(&ToHelper::Link { up: true, clock_set: true });
    respond(&mut helper, late, 200, "too late");
    settle(&mut helper);
    let asked = ask(port);
    let (id, _) = request(&helper);
    respond(&mut helper, id, 200, "in time");
    assert_eq!(asked.join().unwrap().2["body"], "in time");

    // Without a daemon nothing is done, and another one goes on.
    helper.hang_up();
    let began = Instant::now();
    while ask(port).join().unwrap().0 != 503 {
        assert!(began.elapsed() < PATIENCE);
    }
    let settings =
        Settings { servicebus: Some(Servicebus { address: format!("127.0.0.1:{port}") }), ..Settings::default() };
    let mut next = Helper::call(&helper.socket, &settings);
    next.object(Kind::Rule, "r", "rule-1", json!({"targetUrl": URL}));
    next.told();
    settle(&mut next);
    let asked = ask(port);
    let (id, _) = request(&next);
    respond(&mut next, id, 200, "again");
    assert_eq!(asked.join().unwrap().2["body"], "again");
    // A deleted rule does not count.
    let (namespace, name, uid) = ("default".into(), "r".into(), "rule-1".into());
    next.say(&ToHelper::Gone { kind: Kind::Rule, namespace, name, uid });
    settle(&mut next);
    assert_eq!(ask(port).join().unwrap().0, 400);
}

/// A real client, with what it does on its own.
#[test]
fn curl_is_answered() {
    let (mut helper, port) = lab();
    for more in [
        &["-d", ASKED][..],
        &["-H", "Expect: 100-continue", "-d", ASKED],
        &["-H", "Transfer-Encoding: chunked", "-d", ASKED],
    ] {
        let url = format!("http://127.0.0.1:{port}/any/path");
        let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
        let curl = spawn(move || {
            std::process::Command::new("curl").args(["-s", "--max-time", "60"]).args(more).arg(url).output().unwrap()
        });
        let (id, _) = request(&helper);
        respond(&mut helper, id, 200, "yes");
        let output = curl.join().unwrap();
        let body: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(body["body"], "yes");
    }
}

fn peak(helper: &Helper) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", helper.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn clients_that_do_what_they_should_not_keep_nobody_out() {
    let (mut helper, port) = lab();
    let before = peak(&helper);
    let mut held = Vec::new();
    // Says nothing, or half; more than there are places.
    for _ in 0..200 {
        held.push(call(port, b""));
        held.push(call(port, b"POST / HTTP/1.1\r\nContent-Length: 524288\r\n\r\n{"));
    }
    for bytes in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: x\r\n\r\n",
    ] {
        held.push(call(port, bytes));
    }
    // As much as it is taken.
    for start in ["POST / HTTP/1.1\r\nx: ", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;"] {
        let mut stream = call(port, start.as_bytes());
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        let piece = vec![b'x'; 64 << 10];
        let sent = (0..2_000).take_while(|_| stream.write_all(&piece).is_ok()).count();
        assert!(sent < 1_000, "it takes {sent} times 64 KiB");
    }
    // A client that sends a request and does not read: the room is occupied until the bridge has answered, and no
    // longer.
    let mut ids = Vec::new();
    for _ in 0..16 {
        drop(call(port, &post(ASKED)));
        ids.push(request(&helper).0);
    }
    let (status, head, _) = ask(port).join().unwrap();
    assert!(status == 503 && head.contains("retry-after"), "{status} {head}");
    ids.into_iter().for_each(|id| respond(&mut helper, id, 200, &"y".repeat(300_000)));

    let began = Instant::now();
    let asked = ask(port);
    let (id, _) = request(&helper);
    respond(&mut helper, id, 200, "yes");
    assert_eq!(asked.join().unwrap().2["body"], "yes");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let grown = peak(&helper) - before;
    assert!(grown < 24 << 10, "{grown} KiB more");
    held.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
}

/// D1: what is off is not there.
#[test]
fn d01_disabled_servicebus_does_not_listen() {
    let mut helper = Helper::start(&Settings::default());
    helper.object(Kind::Rule, "r", "rule-1", json!({"targetUrl": URL}));
    helper.told();
    settle(&mut helper);
    let sockets = std::fs::read_dir(format!("/proc/{}/fd", helper.pid())).unwrap().flatten();
    let sockets: Vec<String> =
        sockets.filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.display().to_string())).collect();
    let tcp = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/{}/net/{table}", helper.pid())));
    for line in tcp.iter().flatten().flat_map(|table| table.lines().skip(1)) {
        let inode = line.split_whitespace().nth(9).unwrap_or_default();
        assert!(!sockets.contains(&format!("socket:[{inode}]")), "{line}");
    }
}
