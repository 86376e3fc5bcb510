//! A node's helper with a daemon that the test plays, the mapper as a program, and hardware that is simulated.

#![allow(clippy::unwrap_used, dead_code, reason = "a test that cannot go on fails; each test file uses its part")]

pub(crate) mod node;
pub(crate) mod rtu;
pub(crate) mod slave;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Timeout for an expected event, on a slow machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Ends with the test, by its id, as by a crash.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    pub(crate) fn spawn(command: &mut Command, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        Self(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// Whether it runs still.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

/// The program under test.
pub(crate) struct Mapper {
    pub(crate) process: Option<Process>,
    folder: PathBuf,
    arguments: Vec<String>,
}

impl Mapper {
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut mapper = Self { process: None, folder: folder.to_owned(), arguments };
        mapper.again();
        mapper
    }

    pub(crate) fn again(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_edge-mapper"));
        command.arg("--folder").arg(&self.folder).args(&self.arguments);
        self.process = Some(Process::spawn(&mut command, &self.folder.join("mapper.log")));
    }

    /// Same as kill -9.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Lines of its log that have this in them.
    pub(crate) fn logged(&self, text: &str) -> usize {
        let log = std::fs::read_to_string(self.folder.join("mapper.log")).unwrap();
        log.lines().filter(|line| line.contains(text)).count()
    }
}

/// A failed test prints the program's output.
impl Drop for Mapper {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.join("mapper.log")).unwrap_or_default();
            std::io::Write::write_all(&mut std::io::stderr(), log.as_bytes()).unwrap_or_default();
        }
    }
}

/// Waits until `look` returns a value.
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A model with these properties: name, type, access.
pub(crate) fn model(name: &str, protocol: &str, properties: &[(&str, &str, &str)]) -> Value {
    let properties: Vec<Value> = properties
        .iter()
        .map(|(name, kind, access)| json!({"name": name, "type": kind, "accessMode": access}))
        .collect();
    json!({"metadata": {"namespace": "default", "name": name, "uid": format!("model-{name}")},
        "spec": {"protocol": protocol, "properties": properties}})
}

/// A Device of the model of this name.
pub(crate) fn device(name: &str, model: &str, protocol: &str, config: &Value, properties: &Value) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "uid": name},
        "spec": {"deviceModelRef": {"name": model}, "nodeName": "edge-1", "properties": properties,
            "stateReport": {"reportToCloud": true},
            "protocol": {"protocolName": protocol, "configData": config}}})
}
