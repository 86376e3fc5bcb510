//! A device plugin as a process: plugin.py with Google's gRPC.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sampan_tests::wait::patient;
use serde_json::Value;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e_device_plugins");

pub(super) struct Plugin {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
    /// Calls that it has reported so far.
    seen: Vec<Value>,
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Plugin {
    /// Starts a plugin, and waits until it is registered.
    pub(super) fn start(folder: &Path, resource: &str, ids: &str, more: &[&str]) -> Self {
        let plugin = Self::process(folder, resource, ids, more);
        let said = plugin.next();
        assert_eq!(said["registered"], true, "{said}");
        plugin
    }

    /// Starts a plugin that will be refused.
    pub(super) fn start_refused(folder: &Path, resource: &str, ids: &str) -> Self {
        Self::process(folder, resource, ids, &[])
    }

    fn process(folder: &Path, resource: &str, ids: &str, more: &[&str]) -> Self {
        let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/grpcio");
        let packages = std::env::var_os("SAMPAN_GRPCIO").map_or_else(|| packages.into(), PathBuf::from);
        let mut command = Command::new("python3");
        command.arg(Path::new(SOURCES).join("plugin.py")).arg(folder.join("kubelet")).arg(resource);
        command.arg(folder.join("given")).args(["example.com/dev=one", ids]).args(more);
        command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is installed");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let said = serde_json::from_str(&line).expect("JSON");
                if sender.send(said).is_err() {
                    return;
                }
            }
        });
        Self { child, input, lines, seen: Vec::new() }
    }

    fn next(&self) -> Value {
        let said = self.lines.recv_timeout(patient(Duration::from_secs(30)));
        said.unwrap_or_else(|_| panic!("the plugin says nothing; see grpc_requirements.txt"))
    }

    /// Why its registration is refused.
    pub(super) fn refused(&self) -> String {
        let said = self.next();
        said["refused"].as_str().map(str::to_owned).unwrap_or_else(|| panic!("{said}"))
    }

    pub(super) fn command(&mut self, command: &Value) {
        writeln!(self.input, "{command}").expect("it listens");
    }

    /// The devices of each call of this method so far.
    pub(super) fn calls(&mut self, method: &str) -> Vec<Vec<String>> {
        self.seen.extend(self.lines.try_iter());
        let ids = |call: &Value| {
            let ids = call["ids"].as_array().cloned().unwrap_or_default();
            ids.into_iter().filter_map(|id| id.as_str().map(str::to_owned)).collect()
        };
        self.seen.iter().filter(|said| said["call"] == method).map(ids).collect()
    }
}
