//! `kubectl port-forward`: large amounts in both directions, many connections, and ports without a listener.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, Kubectl, can_run, until};
use serde_json::json;

use crate::{kubectls, noise};

/// A port-forward that runs until it is dropped.
struct Forward {
    child: Child,
    port: u16,
}

impl Forward {
    fn start(kubectl: &Kubectl, port: u16) -> Self {
        Self::run(kubectl.command(&["port-forward", "pod/p", &format!(":{port}")]))
    }

    fn run(mut command: std::process::Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("kubectl starts");
        let mut line = String::new();
        // Reads a line one byte at a time: later output is never read, and fits into the pipe.
        let mut out = BufReader::with_capacity(1, child.stdout.as_mut().expect("a pipe"));
        out.read_line(&mut line).expect("kubectl says where");
        let port = line.split(':').nth(1).and_then(|rest| rest.split(' ').next()).and_then(|port| port.parse().ok());
        Self { child, port: port.unwrap_or_else(|| panic!("no port in {line:?}")) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("kubectl listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        stream
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Downloads this file from httpd.
fn download(mut stream: TcpStream, name: &str) -> Vec<u8> {
    stream.write_all(format!("GET /{name} HTTP/1.0\r\n\r\n").as_bytes()).expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    answer.split_off(head + 4)
}

#[test]
fn a_hundred_megabytes_and_twenty_connections_are_forwarded() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("forward");
    let node = cluster.node("edge");
    // An nc whose input has ended closes its side at once, and kubectl treats that as the end of both directions.
    let script = "mkdir /tmp/web; httpd -p 8080 -h /tmp/web; mkfifo /tmp/open; exec 3<>/tmp/open; \
        while :; do nc -l -p 9000 <&3 > /tmp/part; mv /tmp/part /tmp/upload; done";
    cluster.kubectl.apply_all(&[pod("p", &node.name, json!([shell("c", script)]))]);
    cluster.kubectl.wait_ready("p");
    let much = noise(7, 100 << 20);
    let file = cluster.folder().join("file");
    std::fs::write(&file, &much).expect("a file");
    let sum = String::from_utf8(std::process::Command::new("sha256sum").arg(&file).output().expect("it runs").stdout);
    let sum = sum.expect("text").split(' ').next().expect("a sum").to_owned();
    for kubectl in kubectls(&cluster) {
        let forward = Forward::start(&kubectl, 9000);
        let began = Instant::now();
        let mut stream = forward.connect();
        stream.write_all(&much).expect("all is taken");
        stream.shutdown(std::net::Shutdown::Write).expect("the end is told");
        // The other side closes after it has received everything.
        let rest = stream.read_to_end(&mut Vec::new());
        assert!(rest.is_ok(), "{rest:?}");
        let up = began.elapsed();
        let sums = || kubectl.run(&["exec", "p", "--", "sha256sum", "/tmp/upload"]);
        let there = until(Duration::from_secs(20), "the upload is there", sums);
        assert_eq!(there.split(' ').next(), Some(sum.as_str()), "what went up");
        drop(forward);

        let _ = kubectl.ok(&["exec", "p", "--", "mv", "/tmp/upload", "/tmp/web/file"]);
        let forward = Forward::start(&kubectl, 8080);
        let began = Instant::now();
        assert!(download(forward.connect(), "file") == much, "what came down");
        let down = began.elapsed();
        // Printed for the reader of the log.
        let _ = writeln!(std::io::stderr(), "100 MiB up in {up:?}, down in {down:?} ({})", kubectl.program.display());

        let names = "for n in $(seq 20); do seq $n 20000 > /tmp/web/$n; done";
        let _ = kubectl.ok(&["exec", "p", "--", "sh", "-c", names]);
        let streams: Vec<TcpStream> = (0..20).map(|_| forward.connect()).collect();
        let all = streams.into_iter().zip(1..).map(|(stream, n)| {
            std::thread::spawn(move || {
                let expected: String = (n..=20_000).map(|i| format!("{i}\n")).collect();
                download(stream, &n.to_string()) == expected.as_bytes()
            })
        });
        let all: Vec<_> = all.collect();
        assert!(all.into_iter().all(|one| one.join().expect("it ends")), "twenty at once");
    }
}

/// A kubectl since 1.31 tunnels SPDY through a WebSocket (subprotocol `SPDY/3.1+portforward.k8s.io`), and falls back to
/// plain SPDY without a message: its log shows which one it used.
#[test]
fn a_current_kubectl_forwards_through_a_websocket() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("tunnel");
    let node = cluster.node("edge");
    let script = "mkdir /tmp/web; seq 100000 > /tmp/web/file; exec httpd -f -p 8080 -h /tmp/web";
    cluster.kubectl.apply_all(&[pod("p", &node.name, json!([shell("c", script)]))]);
    cluster.kubectl.wait_ready("p");
    let file: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    for kubectl in kubectls(&cluster) {
        if !is_current(&kubectl) {
            let _ = writeln!(std::io::stderr(), "{} is older than 1.31", kubectl.program.display());
            continue;
        }
        for tunnelled in [true, false] {
            let log = cluster.folder().join(format!("forward-{tunnelled}.log"));
            let mut command = kubectl.command(&["port-forward", "pod/p", ":8080", "-v=4"]);
            command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", tunnelled.to_string());
            command.stderr(std::fs::File::create(&log).expect("a file"));
            let forward = Forward::run(command);
            assert!(download(forward.connect(), "file") == file.as_bytes(), "tunnelled: {tunnelled}");
            drop(forward);
            let told = std::fs::read_to_string(&log).expect("a log");
            // The words of 1.31 and of later versions.
            let agreed = told.contains("WebSocket Upgrade") && told.contains("portforward.k8s.io");
            let back = told.to_lowercase().contains("fallback");
            assert!(agreed == tunnelled && !back, "tunnelled: {tunnelled}: {told}");
        }
    }
}

fn is_current(kubectl: &Kubectl) -> bool {
    let said = kubectl.ok(&["version", "--client", "-o", "json"]);
    let version: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let minor = version["clientVersion"]["minor"].as_str().expect("a version").trim_end_matches('+');
    minor.parse::<u32>().expect("a number") >= 31
}

#[test]
fn a_port_where_nobody_listens_is_told() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("refused");
    let node = cluster.node("edge");
    cluster.kubectl.apply_all(&[pod("p", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("p");
    for kubectl in kubectls(&cluster) {
        let mut command = kubectl.command(&["port-forward", "pod/p", ":7777"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl starts");
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let port: u16 = line.split([':', ' ']).find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("kubectl listens");
        let mut nothing = Vec::new();
        // Closed or reset, but soon.
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time limit");
        let _ = stream.read_to_end(&mut nothing);
        assert!(nothing.is_empty());
        let told = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let told = told.take(3).find(|line| line.contains("7777") && line.contains("refused"));
        assert!(told.is_some(), "kubectl says that the port refuses");
        // A current one ends by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}
