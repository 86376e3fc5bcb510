//! A CSI driver as a process: csi_driver.py with Google's gRPC.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sampan_tests::wait::patient;
use serde_json::{Value, json};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge-runtime/plugins/tests/csi_driver.py");

pub(super) struct Driver {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
    /// Calls that it has reported so far.
    seen: Vec<Value>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Driver {
    /// Starts a driver, and waits until it is registered. Its volumes are folders of `FOLDER/NAME`.
    pub(super) fn start(folder: &Path, name: &str) -> Self {
        Self::with(Command::new("python3"), folder, name)
    }

    /// Same as [`Driver::start`], where this process sees mounts.
    pub(super) fn start_beside(pid: u32, folder: &Path, name: &str) -> Self {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{pid}/ns/mnt")).arg("python3");
        Self::with(command, folder, name)
    }

    fn with(mut command: Command, folder: &Path, name: &str) -> Self {
        let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/grpcio");
        let packages = std::env::var_os("SAMPAN_GRPCIO").map_or_else(|| packages.into(), PathBuf::from);
        command.arg(SOURCE).arg(folder.join("kubelet")).arg(name).arg(folder.join(name));
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
        let mut driver = Self { child, input, lines, seen: Vec::new() };
        driver.wait("the registration", |said| said["registered"] == true);
        driver
    }

    fn wait(&mut self, what: &str, accept: impl Fn(&Value) -> bool) {
        loop {
            let said = self.lines.recv_timeout(patient(Duration::from_secs(30)));
            let said = said.unwrap_or_else(|_| panic!("the driver does not say {what}: {:?}", self.seen));
            let done = accept(&said);
            self.seen.push(said);
            if done {
                return;
            }
        }
    }

    /// Waits until this method is called once more.
    pub(super) fn wait_call(&mut self, method: &str) {
        self.wait(method, |said| said["call"] == method);
    }

    /// Has the calls of this method hang; an empty name ends that.
    pub(super) fn hang(&mut self, method: &str) {
        writeln!(self.input, "{}", json!({ "hang": method })).expect("it listens");
    }

    /// How often it was called so far.
    pub(super) fn calls(&mut self, method: &str) -> usize {
        self.seen.extend(self.lines.try_iter());
        self.seen.iter().filter(|said| said["call"] == method).count()
    }
}
