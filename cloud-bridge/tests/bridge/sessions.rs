//! exec, attach and port-forward from a real kubectl through the embedded API to a node that follows a script: what
//! the cloud side does, whatever a device makes of it. With Debian's kubectl (SPDY) and a current one (WebSocket).

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apimachinery::user::UserInfo;
use apiserver::{Config, Server};
use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::tls;
use edge_protocol::channel::{CLOSE, OPENED, RESIZE, Record, Records, STATUS, STDERR, STDIN, STDOUT, records};
use edge_protocol::message::{StreamId, StreamRequest};
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::fixture::{Cluster, TestBridge, eventually, running, status, unique};
use crate::support::{Edge, Store};

/// The kubectls to test with: those that are named, else the one on the path.
#[allow(clippy::print_stderr)] // whoever runs the tests must see what was left out
fn kubectls() -> Vec<PathBuf> {
    let named: Vec<PathBuf> = ["SAMPAN_KUBECTL_NEW", "SAMPAN_KUBECTL_OLD"]
        .into_iter()
        .filter_map(|name| std::env::var_os(name).map(PathBuf::from))
        .collect();
    if !named.is_empty() {
        return named;
    }
    let found = Command::new("kubectl").args(["version", "--client"]).output().is_ok();
    if !found {
        eprintln!("no kubectl is here: set SAMPAN_KUBECTL_NEW");
    }
    if found { vec!["kubectl".into()] } else { Vec::new() }
}

/// An embedded API with a bridge and a pod on a scripted node.
struct Fixture {
    folder: tempfile::TempDir,
    _bridge: TestBridge,
    name: String,
    told: Arc<Told>,
    node: tokio::task::JoinHandle<()>,
}

impl Fixture {
    async fn start() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let told = Arc::new(Told::default());
        tls::install_provider();
        let folder = tempfile::tempdir().unwrap();
        let api = Server::open(Config::new(folder.path().join("api.db"))).unwrap();
        let client = kube::Client::new(api.service(UserInfo::master("test")), "default");
        let inside = api.clone();
        let as_node = move |node: &str| kube::Client::new(inside.service(UserInfo::node(node)), "default");
        let clients = Clients::new(client.clone(), as_node);
        let authority = Authority::create("sessions").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ca = authority.certificate();
        let signed = authority.server(&["127.0.0.1".into()]).unwrap();
        let config = tls::server_config(ca, signed, std::slice::from_ref(ca), &[b"h2", b"http/1.1"]).unwrap();
        kubeconfig(&folder.path().join("config"), &authority, &format!("https://{address}"));
        let server = api.clone();
        tokio::spawn(async move {
            cloud_bridge::api_port::serve(server, listener, config, cloud_bridge::accept::Gate::new()).await
        });

        let cluster = Cluster::over(clients, client);
        let bridge = TestBridge::with_settings(&cluster, Authority::create("link").unwrap(), settings).await;
        api.set_backend(Arc::new(bridge.bridge.clone()));
        let (identity, edge) = bridge.edge(&cluster, &unique("sessions")).await;
        drop(edge);
        let mut edge = Edge::connect_packed(bridge.address, &identity, Store::default()).await;
        let name = edge.name.clone();
        let pod = cluster.create_pod("p", &name, json!({})).await;
        edge.report_and_wait(status(&pod, running())).await.unwrap();
        let node = Script {
            streams: HashMap::new(),
            pod: pod.metadata.uid.unwrap(),
            began: Instant::now(),
            told: Arc::clone(&told),
        };
        Self { folder, _bridge: bridge, name, told, node: tokio::spawn(node.serve(edge)) }
    }

    fn kubectl(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(self.folder.path().join("config")).args(args);
        command.env("HOME", self.folder.path());
        command
    }

    /// Runs it with this input: exit code, output, errors.
    async fn run(&self, program: &Path, args: &[&str], input: Vec<u8>) -> (Option<i32>, Vec<u8>, String) {
        loop {
            let done = self.run_once(program, args, input.clone()).await;
            // Older kubectl begin to read before they have made the streams, and throw away what comes first
            // (client-go's remotecommand/websocket.go says so where it waits for them now).
            if !done.2.contains("Unknown stream id") {
                return done;
            }
        }
    }

    async fn run_once(&self, program: &Path, args: &[&str], input: Vec<u8>) -> (Option<i32>, Vec<u8>, String) {
        let mut command = self.kubectl(program, args);
        let run = move || {
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            // A command that ends early does not read it all.
            let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
            let output = child.wait_with_output().unwrap();
            writer.join().unwrap();
            (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        tokio::time::timeout(Duration::from_secs(60), tokio::task::spawn_blocking(run)).await.expect("it ends").unwrap()
    }
}

fn kubeconfig(path: &Path, authority: &Authority, server: &str) {
    let signed = authority.client("admin", "system:masters").unwrap();
    let config = cloud_bridge::kubeconfig::document(authority, server, "admin", &signed);
    std::fs::write(path, config.to_string()).unwrap();
}

/// One stream at the node.
struct Served {
    what: StreamRequest,
    input: Records,
    output: VecDeque<u8>,
    /// Nothing more will be put out.
    over: bool,
    /// Then it fails. What was sent before is on its way.
    broken: Option<Instant>,
}

/// What the node does: `cat` gives back what it gets, `exit N` ends with N, `both` writes to both outputs, `sleep`
/// takes nothing, `cut` breaks off; every port gives back what it gets, except 81, which is refused.
struct Script {
    streams: HashMap<StreamId, Served>,
    pod: String,
    began: Instant,
    told: Arc<Told>,
}

/// What tests and the script tell each other.
#[derive(Default)]
struct Told {
    /// Streams that are open at the node.
    open: AtomicUsize,
    /// The node says nothing more, on a connection that stands.
    silent: AtomicBool,
    /// Its stats are of the kind that takes a hundred times as much when it is parsed.
    swells: AtomicBool,
}

impl Script {
    async fn serve(mut self, mut edge: Edge) {
        loop {
            while self.told.silent.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if edge.step(Duration::from_millis(20)).await.is_err() {
                return;
            }
            for (id, what) in std::mem::take(&mut edge.streams) {
                self.open(&mut edge, id, what);
            }
            for (id, data) in std::mem::take(&mut edge.data) {
                self.input(&mut edge, id, &data);
            }
            for id in std::mem::take(&mut edge.closed) {
                self.streams.remove(&id);
            }
            for (id, stream) in &mut self.streams {
                let now = edge.session.stream_room(*id).min(stream.output.len());
                let data: Vec<u8> = stream.output.drain(..now).collect();
                edge.session.stream_send(*id, &data).unwrap();
                if stream.broken.is_some_and(|at| Instant::now() > at) {
                    edge.session.stream_end(*id, Some("disk on fire".into()));
                    stream.over = true;
                } else if stream.over && stream.output.is_empty() {
                    edge.session.stream_end(*id, None);
                }
            }
            self.streams.retain(|_, stream| !(stream.over && stream.output.is_empty()));
            self.told.open.store(self.streams.len(), Ordering::SeqCst);
        }
    }

    /// A quarter of a core and 20 MiB for the pod, half a core and 100 MiB for the node.
    fn measured(&self, node: &str) -> serde_json::Value {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap();
        let stats = |part: u64, mebibytes: u64| {
            let memory = json!({"workingSetBytes": mebibytes << 20, "time": "2026-03-01T10:00:00Z"});
            json!({"cpu": {"usageCoreNanoSeconds": nanos / part, "time": "2026-03-01T10:00:00Z"}, "memory": memory})
        };
        let mut container = stats(4, 20);
        (container["name"], container["startTime"]) = ("c".into(), "2026-03-01T09:00:00Z".into());
        let pod_ref = json!({"name": "p", "namespace": "default", "uid": self.pod});
        let mut node_stats = stats(2, 100);
        node_stats["nodeName"] = node.into();
        json!({"node": node_stats, "pods": [{"podRef": pod_ref, "containers": [container]}]})
    }

    fn open(&mut self, edge: &mut Edge, id: StreamId, what: StreamRequest) {
        let mut stream = Served { what, input: Records::default(), output: VecDeque::new(), over: false, broken: None };
        match &stream.what {
            StreamRequest::PortForward { port: 81, .. } => {
                edge.session.stream_end(id, Some("connection refused".into()));
                return;
            }
            StreamRequest::Stats {} if self.told.swells.load(Ordering::SeqCst) => {
                stream.output.extend([b"[".as_slice(), &br#"{"":0},"#.repeat(500_000), b"0]"].concat());
                stream.over = true;
                self.streams.insert(id, stream);
                return;
            }
            StreamRequest::Stats {} => {
                edge.session.stream_send(id, self.measured(&edge.name).to_string().as_bytes()).unwrap();
                edge.session.stream_end(id, None);
                return;
            }
            StreamRequest::Exec { command, .. } if command[0] == "missing" => {
                edge.session.stream_end(id, Some("not found: container \"c\" is not running".into()));
                return;
            }
            _ => {}
        }
        stream.output.extend(records(OPENED, &[]));
        if let StreamRequest::Exec { command, .. } = &stream.what {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            match words[..] {
                ["exit", code] => {
                    let failed = json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                        "message": format!("command terminated with exit code {code}"),
                        "details": {"causes": [{"reason": "ExitCode", "message": code}]}});
                    stream.output.extend(records(STATUS, failed.to_string().as_bytes()));
                    stream.over = true;
                }
                ["both"] => {
                    stream.output.extend([records(STDOUT, b"out\n"), records(STDERR, b"err\n")].concat());
                    stream.finish();
                }
                ["cut"] => {
                    stream.output.extend(records(STDOUT, b"started\n"));
                    stream.broken = Some(Instant::now() + Duration::from_millis(300));
                }
                _ => {}
            }
        }
        self.streams.insert(id, stream);
    }

    fn input(&mut self, edge: &mut Edge, id: StreamId, data: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if matches!(&stream.what, StreamRequest::Exec { command, .. } if command[0] == "sleep") {
            return;
        }
        edge.session.stream_consumed(id, data.len());
        stream.input.push(data);
        while let Some(Record { channel, data }) = stream.input.next_record().unwrap() {
            match channel {
                // This port says one thing, and nothing after it, whatever its client does.
                STDIN if matches!(stream.what, StreamRequest::PortForward { port: 82, .. }) => {
                    stream.output.extend([records(STDOUT, b"bye"), records(CLOSE, &[STDOUT])].concat());
                }
                STDIN => stream.output.extend(records(STDOUT, &data)),
                RESIZE => stream.output.extend(records(STDOUT, &[b"size ", &data[..], b"\n"].concat())),
                CLOSE if data == [STDIN] => stream.finish(),
                _ => {}
            }
        }
    }
}

impl Served {
    fn finish(&mut self) {
        self.output.extend([records(CLOSE, &[STDOUT]), records(CLOSE, &[STDERR])].concat());
        if !matches!(self.what, StreamRequest::PortForward { .. }) {
            self.output.extend(records(STATUS, br#"{"metadata":{},"status":"Success"}"#));
        }
        self.over = true;
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u8::try_from(state >> 24).unwrap()
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[tokio::test]
async fn exec_carries_streams_and_exit_codes() {
    let fixture = Fixture::start().await;
    for kubectl in kubectls() {
        let (code, out, err) = fixture.run(&kubectl, &["exec", "-i", "p", "--", "cat"], b"hi\n".to_vec()).await;
        assert_eq!((code, out.as_slice()), (Some(0), &b"hi\n"[..]), "{kubectl:?} {err}");
        let (code, out, err) = fixture.run(&kubectl, &["exec", "p", "--", "exit", "7"], vec![]).await;
        assert_eq!((code, out.as_slice()), (Some(7), &b""[..]), "{kubectl:?} {err}");
        let (code, out, err) = fixture.run(&kubectl, &["exec", "p", "--", "both"], vec![]).await;
        assert_eq!((code, out.as_slice(), err.contains("err\n")), (Some(0), &b"out\n"[..], true), "{kubectl:?} {err}");
        let much = noise(3_000_000);
        let (code, out, err) = fixture.run(&kubectl, &["exec", "-i", "p", "--", "cat"], much.clone()).await;
        assert!(code == Some(0) && out == much, "{kubectl:?} {} {err}", out.len());
        let (code, out, err) = fixture.run(&kubectl, &["attach", "-i", "p"], b"to the pod".to_vec()).await;
        assert_eq!((code, out.as_slice()), (Some(0), &b"to the pod"[..]), "{kubectl:?} {err}");
    }
}

#[tokio::test]
async fn failures_are_told() {
    let fixture = Fixture::start().await;
    for kubectl in kubectls() {
        let (code, _, err) = fixture.run(&kubectl, &["exec", "p", "--", "missing"], vec![]).await;
        assert!(code == Some(1) && err.contains("container \"c\" is not running"), "{kubectl:?} {err}");
        let (code, _, err) = fixture.run(&kubectl, &["exec", "-c", "x", "p", "--", "cat"], vec![]).await;
        assert!(code == Some(1) && err.contains("container x is not valid for pod p"), "{kubectl:?} {err}");
        let (code, out, err) = fixture.run(&kubectl, &["exec", "p", "--", "cut"], vec![]).await;
        assert!(code == Some(1) && out == b"started\n" && err.contains("disk on fire"), "{kubectl:?} {err}");
        let (code, _, err) = fixture.run(&kubectl, &["exec", "nobody", "--", "cat"], vec![]).await;
        assert!(code == Some(1) && err.contains("\"nobody\" not found"), "{kubectl:?} {err}");
    }
    fixture.node.abort();
    for kubectl in kubectls() {
        let asked = Instant::now();
        let (code, _, err) = fixture.run(&kubectl, &["exec", "p", "--", "cat"], vec![]).await;
        assert!(code == Some(1) && err.contains("last seen"), "{kubectl:?} {err}");
        let (code, _, err) = fixture.run(&kubectl, &["port-forward", "p", ":80"], vec![]).await;
        assert!(code == Some(1) && err.contains("last seen"), "{kubectl:?} {err}");
        assert!(asked.elapsed() < Duration::from_secs(10), "it answers at once");
    }
}

/// A kubectl that goes on until it is killed.
struct Going(Child);

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_client_that_goes_ends_the_nodes_stream_even_when_its_input_is_stuck() {
    let fixture = Fixture::start().await;
    for kubectl in kubectls() {
        let mut command = fixture.kubectl(&kubectl, &["exec", "-i", "p", "--", "sleep"]);
        let mut going = Going(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let mut stdin = going.0.stdin.take().unwrap();
        // More than all buffers on the way hold: the script reads none of it.
        let writer = std::thread::spawn(move || while stdin.write_all(&[0; 65_536]).is_ok() {});
        eventually("the stream", || async { fixture.told.open.load(Ordering::SeqCst) == 1 }).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(going);
        writer.join().unwrap();
        let gone = Instant::now();
        while fixture.told.open.load(Ordering::SeqCst) > 0 {
            assert!(gone.elapsed() < Duration::from_secs(30), "{kubectl:?}: the node's stream goes on");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn a_link_that_falls_silent_ends_what_goes_over_it() {
    let fixture = Fixture::with(Settings { heartbeat: Duration::from_secs(1), ..Settings::default() }).await;
    // The script ends with its connection, so that there is one try.
    if let Some(kubectl) = kubectls().pop() {
        let told = Arc::clone(&fixture.told);
        let cut = async {
            eventually("the stream", || async { told.open.load(Ordering::SeqCst) == 1 }).await;
            told.silent.store(true, Ordering::SeqCst);
            Instant::now()
        };
        let ((code, _, err), cut) = tokio::join!(fixture.run(&kubectl, &["exec", "p", "--", "sleep"], vec![]), cut);
        assert!(code == Some(1) && err.contains("the connection to node"), "{kubectl:?} {err}");
        assert!(cut.elapsed() < Duration::from_secs(10), "two heartbeats, and a little");
    }
}

/// Starts a port-forward and gives its local port.
fn forward(mut command: Command) -> (Going, u16) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = Vec::new();
    let out = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while line.last() != Some(&b'\n') && out.read(&mut byte).unwrap() == 1 {
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).unwrap();
    let port = line.split(':').nth(1).and_then(|rest| rest.split(' ').next()).expect(&line).parse().unwrap();
    (Going(child), port)
}

/// Sends and receives at once, as the script gives back everything.
fn echo(port: u16, bytes: Vec<u8>) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut sender = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        sender.write_all(&bytes).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    back
}

#[tokio::test]
async fn ports_are_forwarded_many_at_once() {
    let fixture = Fixture::start().await;
    for kubectl in kubectls() {
        let command = fixture.kubectl(&kubectl, &["port-forward", "p", ":80"]);
        let work = move || {
            let (_going, port) = forward(command);
            let much = noise(5_000_000);
            assert!(echo(port, much.clone()) == much, "five megabytes both ways");
            let each: Vec<_> = (0..20_usize)
                .map(|n| std::thread::spawn(move || echo(port, noise(50_000 + n)) == noise(50_000 + n)))
                .collect();
            each.into_iter().all(|thread| thread.join().unwrap())
        };
        assert!(tokio::task::spawn_blocking(work).await.unwrap(), "{kubectl:?}");

        let command = fixture.kubectl(&kubectl, &["port-forward", "p", ":82"]);
        let work = move || {
            let (_going, port) = forward(command);
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.write_all(b"hello").unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).expect("the end of a pod's words is the end of its client's wait");
            back
        };
        assert_eq!(tokio::task::spawn_blocking(work).await.unwrap(), b"bye", "{kubectl:?}");
    }
}

#[tokio::test]
async fn top_shows_what_the_node_measures() {
    let fixture = Fixture::start().await;
    for kubectl in kubectls() {
        let (code, out, err) = fixture.run(&kubectl, &["top", "pod", "--containers", "--no-headers"], vec![]).await;
        let words: Vec<String> = String::from_utf8(out).unwrap().split_whitespace().map(str::to_owned).collect();
        assert!(code == Some(0) && words.len() == 4, "{kubectl:?} {words:?} {err}");
        assert_eq!((words[0].as_str(), words[1].as_str(), words[3].as_str()), ("p", "c", "20Mi"));
        let cores: u32 = words[2].strip_suffix('m').unwrap().parse().unwrap();
        assert!((200..300).contains(&cores), "{cores}m");

        let (code, out, err) = fixture.run(&kubectl, &["top", "node", "--no-headers"], vec![]).await;
        let words: Vec<String> = String::from_utf8(out).unwrap().split_whitespace().map(str::to_owned).collect();
        assert!(code == Some(0) && words[0] == fixture.name, "{kubectl:?} {words:?} {err}");
        let cores: u32 = words[1].strip_suffix('m').unwrap().parse().unwrap();
        assert!((400..600).contains(&cores) && words[3] == "100Mi", "{words:?}");

        for (path, expected) in [
            ("stats/summary", "\"workingSetBytes\":20971520"),
            (
                "metrics/resource",
                "container_memory_working_set_bytes{container=\"c\",namespace=\"default\",pod=\"p\"} 20971520 ",
            ),
            ("pods", "\"PodList\""),
            ("healthz", "ok"),
        ] {
            let path = format!("/api/v1/nodes/{}/proxy/{path}", fixture.name);
            let (code, out, err) = fixture.run(&kubectl, &["get", "--raw", &path], vec![]).await;
            let out = String::from_utf8(out).unwrap();
            assert!(code == Some(0) && out.contains(expected), "{path}: {out} {err}");
        }
    }
}

#[tokio::test]
async fn g17_stats_that_swell_when_they_are_parsed_are_refused() {
    let fixture = Fixture::start().await;
    let path = format!("/api/v1/nodes/{}/proxy/stats/summary", fixture.name);
    let kubectl = kubectls().remove(0);
    fixture.told.swells.store(true, Ordering::SeqCst);
    let (code, _, err) = fixture.run(&kubectl, &["get", "--raw", &path], vec![]).await;
    assert!(code == Some(1) && err.contains("stats that hold too many values"), "{code:?} {err}");
    fixture.told.swells.store(false, Ordering::SeqCst);
    let (code, _, err) = fixture.run(&kubectl, &["get", "--raw", &path], vec![]).await;
    assert_eq!(code, Some(0), "{err}");
}
