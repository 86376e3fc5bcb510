//! The helper as a separate process, `sampan-devices` unchanged, and its daemon. The process is another instance of
//! this test program, so that it is never older than the tested code.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_protocol::message::DeviceReport;
use sampan_devices_control::{Dmi, FromHelper, Kind, Report, Settings, ToHelper, VERSION};
use serde_json::Value;

use super::{Process, wait};

const SOCKET: &str = "TEST_NODE_SOCKET";

/// Is the helper, if this process was started as it.
pub(crate) fn be_the_helper() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    sampan_log::start(simple_logger::SimpleLogger::new().with_level(log::LevelFilter::Debug)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(sampan_devices::run::run(Path::new(&socket))).unwrap();
}

/// Data that the helper has sent.
#[derive(Default)]
pub(crate) struct Seen {
    /// Reported values by Device and property, without repetitions.
    pub(crate) reported: BTreeMap<(String, String), Vec<String>>,
    pub(crate) observed: BTreeMap<(String, String), String>,
    pub(crate) states: BTreeMap<String, Vec<String>>,
    /// Reason and message.
    pub(crate) events: Vec<(String, String)>,
    rows: BTreeMap<String, String>,
    pub(crate) mappers: u64,
}

pub(crate) struct Node {
    pub(crate) folder: PathBuf,
    process: Option<Process>,
    objects: BTreeMap<(Kind, String), Value>,
    stream: Option<UnixStream>,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

impl Node {
    pub(crate) fn start(folder: &Path) -> Self {
        let mut node = Self {
            folder: folder.to_owned(),
            process: None,
            objects: BTreeMap::new(),
            stream: None,
            seen: Arc::default(),
        };
        node.again();
        node
    }

    /// Starts a new helper, with the daemon's objects and the rows of the old helper.
    pub(crate) fn again(&mut self) {
        let socket = self.folder.join("devices.sock");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["the_helper", "--exact", "--nocapture"]).env(SOCKET, &socket);
        self.process = Some(Process::spawn(&mut command, &self.folder.join("helper.log")));
        let stream = wait("the helper", || UnixStream::connect(&socket).ok());
        let (reader, writer, seen) = (stream.try_clone().unwrap(), stream.try_clone().unwrap(), Arc::clone(&self.seen));
        self.stream = Some(stream);
        let settings = Settings {
            dmi: Some(Dmi { folder: self.folder.clone(), ..Dmi::default() }),
            report: Report { min_interval_seconds: 0, per_second: 100, ..Report::default() },
            ..Settings::default()
        };
        let settings = serde_json::to_value(settings).unwrap();
        self.say(&ToHelper::Daemon { version: VERSION, node: "edge-1".into(), settings });
        for ((kind, name), body) in self.objects.clone() {
            self.object(kind, &name, body);
        }
        let rows = self.seen.lock().unwrap().rows.clone();
        rows.into_iter().for_each(|(uid, record)| self.say(&ToHelper::Kept { uid, record }));
        self.say(&ToHelper::Told {});
        self.say(&ToHelper::Link { up: true, clock_set: true });
        std::thread::spawn(move || listen(reader, writer, &seen));
    }

    /// Same as kill -9.
    pub(crate) fn kill(&mut self) {
        (self.process, self.stream) = (None, None);
    }

    fn say(&mut self, line: &ToHelper) {
        say(self.stream.as_mut().unwrap(), line);
    }

    pub(crate) fn object(&mut self, kind: Kind, name: &str, body: Value) {
        self.objects.insert((kind, name.to_owned()), body.clone());
        let uid = body["metadata"]["uid"].as_str().unwrap().to_owned();
        self.say(&ToHelper::Object { kind, namespace: "default".into(), name: name.into(), uid, body });
    }

    pub(crate) fn model(&mut self, body: Value) {
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        self.object(Kind::DeviceModel, &name, body);
    }

    pub(crate) fn device(&mut self, body: Value) {
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        self.object(Kind::Device, &name, body);
    }

    pub(crate) fn gone(&mut self, name: &str) {
        self.objects.remove(&(Kind::Device, name.to_owned()));
        self.say(&ToHelper::Gone {
            kind: Kind::Device,
            namespace: "default".into(),
            name: name.into(),
            uid: name.into(),
        });
    }

    pub(crate) fn wait<T>(&self, what: &str, mut look: impl FnMut(&Seen) -> Option<T>) -> T {
        wait(what, || look(&self.seen.lock().unwrap()))
    }

    /// Until this is the last value that was reported.
    pub(crate) fn wait_for(&self, device: &str, property: &str, value: &str) {
        self.wait(&format!("{device} {property} {value}"), |seen| {
            let values = seen.reported.get(&(device.to_owned(), property.to_owned()))?;
            (values.last()? == value).then_some(())
        });
    }

    pub(crate) fn wait_for_state(&self, device: &str, state: &str) {
        self.wait(&format!("{device} {state}"), |seen| (seen.states.get(device)?.last()? == state).then_some(()));
    }

    pub(crate) fn observed(&self, device: &str, property: &str) -> Option<String> {
        self.seen.lock().unwrap().observed.get(&(device.to_owned(), property.to_owned())).cloned()
    }
}

fn say(stream: &mut UnixStream, line: &ToHelper) {
    let mut text = serde_json::to_vec(line).unwrap();
    text.push(b'\n');
    // A killed helper receives nothing.
    let _ = stream.write_all(&text);
}

fn push_new(values: &mut Vec<String>, value: String) {
    if values.last() != Some(&value) {
        values.push(value);
    }
}

fn listen(reader: UnixStream, mut writer: UnixStream, seen: &Mutex<Seen>) {
    for line in BufReader::new(reader).lines() {
        let Ok(line) = line else { return };
        let line = serde_json::from_str(&line).unwrap();
        let mut seen = seen.lock().unwrap();
        match line {
            FromHelper::Report { batch, devices } => {
                for device in devices {
                    let device: DeviceReport = serde_json::from_value(device).unwrap();
                    if let Some(state) = device.state {
                        push_new(seen.states.entry(device.name.clone()).or_default(), state.state);
                    }
                    for twin in device.twins {
                        let key = (device.name.clone(), twin.property);
                        if let Some(observed) = twin.observed {
                            seen.observed.insert(key.clone(), observed.value);
                        }
                        if let Some(reported) = twin.reported {
                            push_new(seen.reported.entry(key).or_default(), reported.value);
                        }
                    }
                }
                say(&mut writer, &ToHelper::Ack { batch, refused: Vec::new() });
            }
            FromHelper::Keep { rows, .. } => {
                for row in rows {
                    if row.record.is_empty() {
                        seen.rows.remove(&row.uid);
                    } else {
                        seen.rows.insert(row.uid, row.record);
                    }
                }
            }
            FromHelper::Event { reason, message, .. } => seen.events.push((reason, message)),
            FromHelper::Counters { counters } => seen.mappers = counters["mappers"].as_u64().unwrap_or_default(),
            _ => {}
        }
        drop(seen);
        std::thread::sleep(Duration::from_millis(1));
    }
}
