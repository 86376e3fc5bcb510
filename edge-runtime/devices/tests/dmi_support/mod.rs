//! A mapper in another process, and a folder for it.

#![allow(clippy::unwrap_used, dead_code, reason = "a test that cannot go on fails; each test file uses its part")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use sampan_devices_control::{Dmi, FromHelper, Kind, Settings, ToHelper};
use serde_json::{Value, json};

use crate::support::{Helper, PATIENCE};

/// Where `grpc_requirements.txt` is installed.
fn packages() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/grpcio");
    let packages = std::env::var_os("SAMPAN_GRPCIO").map_or(usual, PathBuf::from);
    assert!(packages.join("grpc").is_dir(), "grpcio is to be in {}: see grpc_requirements.txt", packages.display());
    packages
}

pub(crate) fn settings(folder: &Path) -> Settings {
    Settings { dmi: Some(Dmi { folder: folder.into(), ..Dmi::default() }), ..Settings::default() }
}

pub(crate) fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < PATIENCE, "{} does not come to be", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) struct Mapper {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
    /// Answer to its registration.
    pub(crate) registered: Value,
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Mapper {
    /// Registered and serving; or not, and why.
    pub(crate) fn try_start(folder: &Path, name: &str, protocol: &str, seconds: &str) -> Result<Self, String> {
        Self::try_start_within(folder, name, protocol, seconds, "1")
    }

    /// `deadline`: of the registration, in seconds.
    pub(crate) fn try_start_within(
        folder: &Path,
        name: &str,
        protocol: &str,
        seconds: &str,
        deadline: &str,
    ) -> Result<Self, String> {
        wait_for(&folder.join("dmi.sock"));
        let mut command = Command::new("python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dmi_mapper.py"));
        command.arg(folder).args([name, protocol, seconds, deadline]);
        command.env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Some(line) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut mapper = Self { child, input, lines, registered: Value::Null };
        mapper.registered = mapper.next();
        match mapper.registered["died"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok(mapper),
        }
    }

    pub(crate) fn start(folder: &Path, name: &str, protocol: &str) -> Self {
        let mapper = Self::try_start(folder, name, protocol, "0").unwrap();
        assert_eq!(mapper.next(), json!({"serving": true}));
        mapper
    }

    pub(crate) fn next(&self) -> Value {
        self.lines.recv_timeout(PATIENCE).expect("the mapper says something")
    }

    /// The next call that it gets: method and device.
    pub(crate) fn called(&self) -> (String, Value) {
        let mut said = self.next();
        assert!(said["call"].is_string(), "{said}");
        (said["call"].as_str().unwrap().to_owned(), said["device"].take())
    }

    /// Gets nothing within this time.
    pub(crate) fn is_left_alone(&self, time: Duration) {
        if let Ok(said) = self.lines.recv_timeout(time) {
            panic!("{said}");
        }
    }

    /// Does it, and says how it went.
    pub(crate) fn does(&mut self, line: &Value) -> Value {
        writeln!(self.input, "{line}").unwrap();
        let mut said = self.next();
        assert!(said.get("outcome").is_some(), "{said}");
        said["outcome"].take()
    }

    pub(crate) fn reports(&mut self, device: &str, twins: Value) -> Value {
        self.does(&json!({"report": device, "twins": twins}))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// State that a daemon stores.
#[derive(Default)]
pub(crate) struct Rows(pub(crate) BTreeMap<String, String>);

impl Rows {
    /// Takes what the helper gives to be kept, until it is so.
    pub(crate) fn take_until(&mut self, helper: &Helper, is_so: impl Fn(&BTreeMap<String, String>) -> bool) {
        while !is_so(&self.0) {
            let FromHelper::Keep { rows, .. } = helper.next() else { continue };
            for row in rows {
                if row.record.is_empty() {
                    self.0.remove(&row.uid)
                } else {
                    self.0.insert(row.uid, row.record)
                };
            }
        }
    }

    pub(crate) fn tell(&self, helper: &mut Helper) {
        for (uid, record) in self.0.clone() {
            helper.say(&ToHelper::Kept { uid, record });
        }
    }
}

pub(crate) fn object(helper: &mut Helper, kind: Kind, namespace: &str, name: &str, body: Value) {
    let uid = format!("{namespace}-{name}");
    helper.say(&ToHelper::Object { kind, namespace: namespace.into(), name: name.into(), uid, body });
}

pub(crate) fn gone(helper: &mut Helper, namespace: &str, name: &str) {
    let (namespace, uid, name) = (namespace.to_owned(), format!("{namespace}-{name}"), name.to_owned());
    helper.say(&ToHelper::Gone { kind: Kind::Device, namespace, name, uid });
}

/// `lab`, whose driver speaks the protocol of that name.
pub(crate) fn model() -> Value {
    json!({"spec": {"protocol": "lab", "protocolConfigData": {"baud": 9_600}, "properties": [
        {"name": "temp", "type": "FLOAT", "accessMode": "ReadOnly", "minimum": "-40", "maximum": "125", "unit": "C"},
        {"name": "led", "type": "STRING", "accessMode": "ReadWrite", "visitors": {"protocolName": "lab", "configData": {"register": 1}}},
    ]}})
}

pub(crate) fn device(led: &str) -> Value {
    json!({"spec": {"deviceModelRef": {"name": "lab"}, "protocol": {"protocolName": "lab", "configData": {"port": "/dev/ttyS0"}},
        "properties": [
            {"name": "temp", "reportToCloud": true, "collectCycle": 1_000, "visitors": {"protocolName": "lab", "configData": {"register": 7}}},
            {"name": "led", "reportToCloud": true, "desired": {"value": led, "metadata": {"type": "string"}}},
    ]}})
}
