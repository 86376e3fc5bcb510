//! A KubeEdge mapper beside the node: desired values from the API reach it, and restarts of other programs do not.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sampan_tests::process::signal;
use sampan_tests::wait::{patient, until};
use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::{Value, json};

use super::{SOON, device, install, model, twin};

pub(super) const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge-runtime/devices/tests");

/// A mapper process that prints its calls and executes commands, one JSON text a line.
pub(super) struct Mapper {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Mapper {
    pub(super) fn start(folder: &Path) -> Self {
        until(Duration::from_secs(20), "mappers may register", || {
            folder.join("dmi.sock").exists().then_some(()).ok_or_else(String::new)
        });
        let mapper = Self::early(folder);
        let _ = mapper.serves();
        mapper
    }

    /// Starts before the node, and waits for it.
    pub(super) fn early(folder: &Path) -> Self {
        let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/grpcio");
        let packages = std::env::var_os("SAMPAN_GRPCIO").map_or_else(|| packages.into(), PathBuf::from);
        let mut command = Command::new("python3");
        command.arg(Path::new(SOURCES).join("dmi_mapper.py")).arg(folder).args(["m", "lab", "0", "60"]);
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
        Self { child, input, lines }
    }

    /// Number of devices that it receives when it registers; then it accepts calls.
    pub(super) fn serves(&self) -> u64 {
        let registered = self.next();
        assert_eq!(self.next(), json!({"serving": true}));
        registered["devices"].as_u64().unwrap_or_else(|| panic!("{registered}; see grpc_requirements.txt in {SOURCES}"))
    }

    fn next(&self) -> Value {
        self.next_within(Duration::from_secs(20))
    }

    fn next_within(&self, limit: Duration) -> Value {
        self.lines.recv_timeout(patient(limit)).expect("the mapper says something")
    }

    /// The next call: method, and the desired value of the device's LED.
    pub(super) fn called(&self) -> (String, Option<String>) {
        self.called_within(Duration::from_secs(20))
    }

    /// Same with another timeout.
    pub(super) fn called_within(&self, limit: Duration) -> (String, Option<String>) {
        let said = self.next_within(limit);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let method = text(&said["call"]).unwrap_or_else(|| panic!("{said}"));
        (method, text(&said["device"]["properties"]["led"]["desired"]))
    }

    /// Reports a value of `t1` until it is accepted.
    pub(super) fn reports(&mut self, namespace: &str, property: &str, value: &str) {
        self.says_until_taken(namespace, &json!({"property": property, "observed": "", "reported": value}));
    }

    /// Reports that `t1` has its desired value.
    pub(super) fn obeys(&mut self, namespace: &str, property: &str, value: &str) {
        self.says_until_taken(namespace, &json!({"property": property, "observed": value, "reported": value}));
    }

    /// A new helper accepts no report before the daemon has sent it all objects.
    fn says_until_taken(&mut self, namespace: &str, twin: &Value) {
        until(Duration::from_secs(20), "the report is taken", || match self.says(namespace, twin).as_str() {
            "OK" => Ok(()),
            other => Err(other.to_owned()),
        });
    }

    /// The result of a report, within a second.
    pub(super) fn says(&mut self, namespace: &str, twin: &Value) -> String {
        writeln!(self.input, "{}", json!({"report": format!("{namespace}/t1"), "twins": [twin]})).expect("it listens");
        let said = self.next();
        said["outcome"].as_str().map(str::to_owned).unwrap_or_else(|| panic!("{said}"))
    }
}

/// D8, D9.
#[test]
fn d09_a_mapper_is_called_for_real_changes_alone() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("devices-mapper");
    install(&cluster);
    let folder = cluster.folder().join("kubeedge");
    let mut node = EdgeNode::prepare(&cluster, "edge");
    node.configure(&format!("device-twin: {{dmi: {{folder: '{}'}}}}\n", folder.display()));
    node.start();
    node.wait_ready();
    let (kubectl, root) = (cluster.kubectl.clone(), node.root().to_owned());
    let mut mapper = Mapper::start(&folder);
    // The Device comes first: its model may be created later.
    kubectl.apply(&device("t1", &node.name, "ON").to_string());
    kubectl.apply(&model().to_string());
    assert_eq!(mapper.called().0, "CreateDeviceModel");
    assert_eq!(mapper.called(), ("RegisterDevice".to_owned(), Some("ON".to_owned())));

    let patch = json!({"spec": {"properties": [
        {"name": "temp", "reportToCloud": true}, {"name": "led", "reportToCloud": true, "desired": {"value": "OFF"}},
    ]}});
    let _ = kubectl.ok(&["patch", "device", "t1", "--type", "merge", "-p", &patch.to_string()]);
    assert_eq!(mapper.called(), ("UpdateDevice".to_owned(), Some("OFF".to_owned())));

    // Each report is written to the API, and each program is killed once, without an effect on the mapper.
    let mut shown = |cluster: &Cluster, value: &str| {
        until(Duration::from_secs(20), "the helper takes reports", || {
            folder.join("dmi.sock").exists().then_some(()).ok_or_else(String::new)
        });
        mapper.reports(&cluster.kubectl.namespace, "temp", value);
        until(patient(SOON * 12), "the value in the API", || {
            let status = cluster.kubectl.get("devicestatus", "t1")?;
            let reported = twin(&status, "temp")["reported"]["value"].clone();
            if reported == value { Ok(()) } else { Err(reported.to_string()) }
        });
    };
    let helper = || super::off::helpers(&root).first().copied();
    shown(&cluster, "1");
    // Sent values are stored within a second; younger ones are sent again after a kill.
    std::thread::sleep(Duration::from_secs(3));
    let pid = helper().expect("the helper runs");
    signal(pid, "KILL");
    until(Duration::from_secs(10), "another helper", || match helper() {
        Some(other) if other != pid => Ok(()),
        other => Err(format!("{other:?}")),
    });
    shown(&cluster, "2");
    node.kill();
    node.start();
    shown(&cluster, "3");
    cluster.kill_bridge();
    cluster.start_bridge();
    shown(&cluster, "4");

    let _ = kubectl.ok(&["delete", "device", "t1"]);
    assert_eq!(mapper.called().0, "RemoveDevice");
}
