//! A real broker with its clients, and the helper with a daemon that the test plays.

#![allow(clippy::unwrap_used, dead_code, reason = "a test that cannot go on fails; each test file uses its part")]

pub(crate) mod raw;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use sampan_devices_control::{FromHelper, Kind, Listen, Mqtt, Row, Settings, ToHelper, VERSION};
use serde_json::{Value, json};

/// Timeout for an expected event, on a slow machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const NODE: &str = "edge-1";

/// Ends with the test, by its id.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Debian's mosquitto with a configuration of the test's own, or the listener of the helper in its place.
pub(crate) struct Broker {
    process: Option<Process>,
    pub(crate) port: u16,
    pub(crate) socket: PathBuf,
    folder: tempfile::TempDir,
    /// Where clients connect to the helper itself.
    listen: Option<Listen>,
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Broker {
    pub(crate) fn start() -> Self {
        Self::with("allow_anonymous true\n")
    }

    /// Starts with these lines of configuration for both listeners.
    pub(crate) fn with(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let socket = folder.path().join("mqtt.sock");
        let configuration = format!(
            "user root\nlistener {port} 127.0.0.1\nlistener 0 {}\nlog_dest stderr\npersistence false\n{lines}",
            socket.display()
        );
        // Two users: one for the node, which may not publish deltas, and one for the test.
        let (passwords, acl) = (folder.path().join("passwords"), folder.path().join("acl"));
        std::fs::write(&passwords, "node:secret\ntest:secret\n").unwrap();
        assert!(Command::new("mosquitto_passwd").arg("-U").arg(&passwords).status().unwrap().success());
        let rules = "user node\ntopic read $hw/events/#\ntopic write $hw/events/device/+/+/twin/update/result\n\n\
            user test\ntopic readwrite $hw/events/#\ntopic readwrite test/#\n";
        std::fs::write(&acl, rules).unwrap();
        let configuration = configuration
            .replace("PASSWORDS", &passwords.to_string_lossy())
            .replace("acl_file ACL", &format!("acl_file {}", acl.display()));
        std::fs::write(folder.path().join("mosquitto.conf"), configuration).unwrap();
        let mut broker = Self { process: None, port, socket, folder, listen: None };
        broker.again();
        broker
    }

    /// No broker: the helper listens, once it has these settings.
    pub(crate) fn none() -> Self {
        Self::none_with("")
    }

    /// Starts with a file of these users, if there are any.
    pub(crate) fn none_with(users: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (port, socket, file) = (free_port(), folder.path().join("mqtt.sock"), folder.path().join("users"));
        let mut listen = Listen { address: format!("127.0.0.1:{port}"), ..Listen::default() };
        if !users.is_empty() {
            secret(&file, users);
            listen.users_file = file.to_string_lossy().into_owned();
        }
        Self { process: None, port, socket, folder, listen: Some(listen) }
    }

    pub(crate) fn is_mosquitto(&self) -> bool {
        self.listen.is_none()
    }

    pub(crate) fn wait(&self) {
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(start.elapsed() < PATIENCE, "nobody listens");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn again(&mut self) {
        let mut command = Command::new(program("mosquitto"));
        command.arg("-c").arg(self.folder.path().join("mosquitto.conf"));
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(Process(command.spawn().expect("mosquitto is installed")));
        self.wait();
    }

    /// How often a client with the helper's name has connected.
    pub(crate) fn connections(&self) -> usize {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        log.lines().filter(|line| line.contains("New client connected") && line.contains("edge-devices-")).count()
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    pub(crate) fn mqtt(&self) -> Mqtt {
        Mqtt { broker: format!("tcp://127.0.0.1:{}", self.port), ..Mqtt::default() }
    }

    pub(crate) fn settings(&self) -> Settings {
        let mqtt = self.is_mosquitto().then(|| self.mqtt());
        Settings { mqtt, listen: self.listen.clone(), ..Settings::default() }
    }

    /// Publishes, and is back when the broker has it.
    pub(crate) fn publish(&self, topic: &str, payload: &str) {
        self.publish_with(topic, payload, &[]);
    }

    pub(crate) fn publish_with(&self, topic: &str, payload: &str, more: &[&str]) {
        let mut command = Command::new(program("mosquitto_pub"));
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-q", "1", "-t", topic]).args(more);
        command.arg(if payload.is_empty() { "-n" } else { "-s" });
        let mut child = command.stdin(Stdio::piped()).spawn().expect("mosquitto_pub is installed");
        child.stdin.take().unwrap().write_all(payload.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Publishes each line.
    pub(crate) fn publish_lines(&self, topic: &str, lines: &str) {
        let mut command = Command::new(program("mosquitto_pub"));
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-q", "1", "-t", topic, "-l"]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("mosquitto_pub is installed");
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Hears everything.
    pub(crate) fn subscribe(&self) -> Heard {
        self.subscribe_with(&[])
    }

    pub(crate) fn subscribe_with(&self, login: &[&str]) -> Heard {
        self.subscribe_to(&[], login)
    }

    /// Hears these, too.
    pub(crate) fn subscribe_to(&self, filters: &[&str], login: &[&str]) -> Heard {
        let mut command = Command::new(program("mosquitto_sub"));
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-q", "1", "-v"]);
        command.args(["-t", "$hw/events/#", "-t", "test/ready"]).args(login);
        for filter in filters {
            command.args(["-t", filter]);
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("mosquitto_sub is installed");
        let lines = lines_of(child.stdout.take().unwrap());
        let heard = Heard { lines, _process: Process(child) };
        // The subscription works when it receives a message.
        let start = Instant::now();
        loop {
            self.publish_with("test/ready", "x", login);
            match heard.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(_) => return heard,
                Err(_) => assert!(start.elapsed() < PATIENCE, "the subscription does not come to be"),
            }
        }
    }
}

/// The middle one: a pause of the whole machine makes a few long, and not most.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A file that only its owner reads.
pub(crate) fn secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Debian has the broker where only root looks.
fn program(name: &str) -> PathBuf {
    let sbin = Path::new("/usr/sbin").join(name);
    if sbin.exists() { sbin } else { name.into() }
}

fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Output of a subscriber.
pub(crate) struct Heard {
    lines: Receiver<String>,
    _process: Process,
}

impl Heard {
    /// The payload of the next message with this topic; others are passed over.
    pub(crate) fn next(&self, topic: &str) -> String {
        let start = Instant::now();
        while let Some(left) = PATIENCE.checked_sub(start.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.split_once(' ') {
                    Some((heard, payload)) if heard == topic => return payload.to_owned(),
                    _ => {}
                },
                Err(_) => break,
            }
        }
        panic!("nothing was heard of {topic}");
    }

    /// All topics that are heard within this time.
    pub(crate) fn all_within(&self, time: Duration) -> Vec<String> {
        let start = Instant::now();
        let mut all = Vec::new();
        while let Some(left) = time.checked_sub(start.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(line) => all.push(line),
                Err(_) => break,
            }
        }
        all
    }
}

/// The helper, and a connection as its daemon.
pub(crate) struct Helper {
    process: Option<Process>,
    pub(crate) socket: PathBuf,
    lines: Receiver<String>,
    stream: UnixStream,
    _folder: Option<tempfile::TempDir>,
}

pub(crate) fn connect(socket: &Path) -> UnixStream {
    let start = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn spawn(socket: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edge-devices"));
    command.arg("--socket").arg(socket).args(["--log", "debug"]).stdin(Stdio::null());
    Process(command.spawn().unwrap())
}

impl Helper {
    pub(crate) fn start(settings: &Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("devices.sock");
        let process = spawn(&socket);
        let mut helper = Self::call(&socket, settings);
        helper.process = Some(process);
        helper._folder = Some(folder);
        helper
    }

    /// Another daemon's connection to a helper that runs.
    pub(crate) fn call(socket: &Path, settings: &Settings) -> Self {
        let stream = connect(socket);
        let lines = lines_of(stream.try_clone().unwrap());
        let mut helper = Self { process: None, socket: socket.to_owned(), lines, stream, _folder: None };
        helper.say(&ToHelper::Daemon {
            version: VERSION,
            node: NODE.into(),
            settings: serde_json::to_value(settings).unwrap(),
        });
        helper
    }

    /// Dies as by a crash, and is started again at the same socket.
    pub(crate) fn again(&mut self, settings: &Settings) {
        self.process = None;
        let process = spawn(&self.socket);
        let folder = self._folder.take();
        *self = Self { process: Some(process), _folder: folder, ..Self::call(&self.socket.clone(), settings) };
    }

    pub(crate) fn say(&mut self, line: &ToHelper) {
        let mut text = serde_json::to_vec(line).unwrap();
        text.push(b'\n');
        self.stream.write_all(&text).unwrap();
    }

    pub(crate) fn object(&mut self, kind: Kind, name: &str, uid: &str, body: Value) {
        let line = ToHelper::Object { kind, namespace: "default".into(), name: name.into(), uid: uid.into(), body };
        self.say(&line);
    }

    /// The model `lab` and the device `t1` with this desired value of its LED.
    pub(crate) fn lab(&mut self, led: &str) {
        self.object(Kind::DeviceModel, "lab", "model-1", model());
        self.object(Kind::Device, "t1", "device-1", device(led));
    }

    pub(crate) fn told(&mut self) {
        self.say(&ToHelper::Told {});
        self.say(&ToHelper::Link { up: true, clock_set: true });
    }

    /// The next line that is not about counters.
    pub(crate) fn next(&self) -> FromHelper {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the helper says something");
            match serde_json::from_str(&line).unwrap() {
                FromHelper::Counters { .. } => {}
                line => return line,
            }
        }
    }

    /// A line that comes within a moment.
    pub(crate) fn soon(&self) -> Option<FromHelper> {
        let line = self.lines.recv_timeout(Duration::from_millis(100)).ok()?;
        Some(serde_json::from_str(&line).unwrap())
    }

    /// Same as [`next`](Self::next), if it comes within this time.
    pub(crate) fn within(&self, time: Duration) -> Option<FromHelper> {
        let end = Instant::now() + time;
        loop {
            let line = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())).ok()?;
            match serde_json::from_str(&line).unwrap() {
                FromHelper::Counters { .. } => {}
                line => return Some(line),
            }
        }
    }

    /// The next report, with its batch.
    pub(crate) fn report(&self) -> (u64, Vec<edge_protocol::message::DeviceReport>) {
        loop {
            if let FromHelper::Report { batch, devices } = self.next() {
                return (batch, devices.into_iter().map(|device| serde_json::from_value(device).unwrap()).collect());
            }
        }
    }

    pub(crate) fn kept(&self) -> Vec<Row> {
        loop {
            if let FromHelper::Keep { rows, .. } = self.next() {
                return rows;
            }
        }
    }

    /// Whether the other end has hung up.
    pub(crate) fn is_over(&self) -> bool {
        let start = Instant::now();
        while let Some(left) = PATIENCE.checked_sub(start.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        false
    }

    /// Its exit code.
    pub(crate) fn exit(&mut self) -> Option<i32> {
        self.process.take().and_then(|mut process| process.0.wait().unwrap().code())
    }

    pub(crate) fn exit_after_end(&mut self) -> Option<i32> {
        self.say(&ToHelper::End {});
        self.exit()
    }

    /// The daemon is gone.
    pub(crate) fn hang_up(&self) {
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
    }

    /// Returns the next counters.
    pub(crate) fn counters(&self) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the helper counts");
            if let FromHelper::Counters { counters } = serde_json::from_str(&line).unwrap() {
                return counters;
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().0.id()
    }
}

/// Until the helper is connected to the broker, requests get no answer.
pub(crate) fn say_until_answered(broker: &Broker, heard: &Heard) {
    for _ in 0..100 {
        broker.publish("$hw/events/device/default/nobody/twin/get", r#"{"event_id":"0"}"#);
        let all = heard.all_within(Duration::from_millis(200));
        if all.iter().any(|line| line.contains("nobody/twin/get/result")) {
            return;
        }
    }
    panic!("the helper answers nothing");
}

pub(crate) fn model() -> Value {
    json!({"metadata": {"namespace": "default", "name": "lab", "uid": "model-1"}, "spec": {"protocol": "lab", "properties": [
        {"name": "temp", "type": "FLOAT", "accessMode": "ReadOnly", "minimum": "-40", "maximum": "125", "unit": "C"},
        {"name": "led", "type": "STRING", "accessMode": "ReadWrite"},
    ]}})
}

pub(crate) fn device(led: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": "t1", "uid": "device-1", "labels": {"description": "bench"}},
        "spec": {"deviceModelRef": {"name": "lab"}, "nodeName": NODE, "properties": [
            {"name": "temp", "reportToCloud": true, "desired": {"value": ""}},
            {"name": "led", "reportToCloud": true, "desired": {"value": led, "metadata": {"type": "string"}}},
    ]}})
}

/// Replaces every time and every random id: the rest is compared as text, including the order of keys.
pub(crate) fn golden(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\"timestamp\":") {
        let (before, after) = rest.split_at(at + "\"timestamp\":".len());
        out.push_str(before);
        out.push('T');
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out.push_str(rest);
    let start = "{\"event_id\":\"";
    match out.strip_prefix(start).and_then(|rest| rest.split_once('"')) {
        Some((id, rest)) if id.len() == 36 => format!("{start}UUID\"{rest}"),
        _ => out,
    }
}
