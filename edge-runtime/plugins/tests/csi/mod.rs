//! The helper as a process that can be killed, the daemon at its socket, and a driver in Python.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sampan_plugins_control::{CsiMount, CsiPod, FromHelper, Settings, ToHelper, VERSION};
use sampan_sys::files::{mounts_below, unmount};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::python::packages;

/// Timeout for an expected event, on a slow machine too.
const PATIENCE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(10);
pub(crate) const DRIVER: &str = "bind.example.com";
/// A handle need not be a valid file name.
pub(crate) const HANDLE: &str = "../../pool/volume 1 \u{fc}";
pub(crate) const VOLUME: &str = "pv-1";

/// Waits until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        sleep(MOMENT);
    }
}

/// A process that ends with the test, by its id.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Helper {
    _process: Process,
    control: BufReader<UnixStream>,
}

/// The daemon's side.
pub(crate) struct Node {
    helper: Option<Helper>,
    pub(crate) root: PathBuf,
    folder: TempDir,
    newest: u64,
}

impl Node {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("kubelet");
        std::fs::create_dir(&root).unwrap();
        let mut node = Self { helper: None, root, folder, newest: 0 };
        node.start_helper();
        node
    }

    fn start_helper(&mut self) {
        let socket = self.folder.path().join("plugins.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_edge-plugins"));
        let process = Process(command.arg("--socket").arg(&socket).spawn().unwrap());
        let mut connected = None;
        until("the helper listens", || {
            connected = UnixStream::connect(&socket).ok();
            connected.is_some()
        });
        self.helper = Some(Helper { _process: process, control: BufReader::new(connected.unwrap()) });
        self.greet();
    }

    /// Another daemon calls at the same helper. These pods are kept.
    pub(crate) fn reconnect(&mut self, kept: &[&str]) {
        let control = UnixStream::connect(self.folder.path().join("plugins.sock")).unwrap();
        self.helper.as_mut().unwrap().control = BufReader::new(control);
        self.greet();
        self.keep(kept);
        self.say(&ToHelper::Ping {});
        assert_eq!(self.answer(), FromHelper::Pong {}, "it knows which are kept");
    }

    fn greet(&mut self) {
        let control = self.helper.as_mut().unwrap().control.get_mut();
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        let settings = Settings {
            root: self.root.clone(),
            device_plugins: false,
            pod_resources: false,
            csi: true,
            csi_controllers: BTreeMap::from([(DRIVER.into(), self.controller())]),
            cdi_folders: Vec::new(),
            taken: Vec::new(),
        };
        self.say(&ToHelper::Daemon { version: VERSION, node: "n".into(), settings });
        assert_eq!(self.hear(), FromHelper::Hello { version: VERSION });
    }

    /// Where `csi_driver.py` serves, also as a controller.
    fn controller(&self) -> String {
        self.root.join("plugins").join(DRIVER).join("csi.sock").to_str().unwrap().to_owned()
    }

    /// A connection for a call of a controller, as the daemon makes it.
    pub(crate) fn caller(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("plugins.csi")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Kills the helper, like `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.helper.take().unwrap();
    }

    /// Starts another helper, has it keep these pods, and waits until it knows this number of drivers.
    pub(crate) fn restart(&mut self, kept: &[&str], drivers: usize) {
        self.start_helper();
        self.keep(kept);
        self.drivers(drivers);
    }

    pub(crate) fn keep(&mut self, kept: &[&str]) {
        self.say(&ToHelper::Keep { pods: kept.iter().map(|pod| (*pod).to_owned()).collect() });
    }

    pub(crate) fn say(&mut self, line: &ToHelper) {
        let mut text = serde_json::to_vec(line).unwrap();
        text.push(b'\n');
        self.helper.as_mut().unwrap().control.get_mut().write_all(&text).unwrap();
    }

    fn hear(&mut self) -> FromHelper {
        let mut text = String::new();
        let length = self.helper.as_mut().unwrap().control.read_line(&mut text).unwrap();
        assert!(length > 0, "the helper has gone");
        serde_json::from_str(&text).unwrap()
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> FromHelper {
        loop {
            match self.hear() {
                FromHelper::Counters { .. }
                | FromHelper::Ready { .. }
                | FromHelper::Told {}
                | FromHelper::Drivers { .. } => {}
                line => return line,
            }
        }
    }

    /// Waits until the helper knows this number of drivers.
    pub(crate) fn drivers(&mut self, count: usize) -> Value {
        loop {
            if let FromHelper::Drivers { drivers } = self.hear()
                && drivers.as_array().unwrap().len() == count
            {
                return drivers;
            }
        }
    }

    /// Sends an order, and returns its number.
    pub(crate) fn mount(&mut self, mount: CsiMount) -> u64 {
        self.newest += 1;
        self.say(&ToHelper::Mount { id: self.newest, mount: Box::new(mount) });
        self.newest
    }

    pub(crate) fn unmount(&mut self, pod: &str) -> u64 {
        self.newest += 1;
        self.say(&ToHelper::Unmount { id: self.newest, pod: pod.to_owned(), volume: VOLUME.to_owned() });
        self.newest
    }

    /// Mounts, and returns the path.
    pub(crate) fn mounted(&mut self, mount: CsiMount) -> PathBuf {
        let wanted = self.mount(mount);
        match self.answer() {
            FromHelper::Mounted { id, path } if id == wanted => path.into(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn unmounted(&mut self, pod: &str) {
        let id = self.unmount(pod);
        assert_eq!(self.answer(), FromHelper::Unmounted { id });
    }

    /// Why the order that is under way has failed, and whether its driver is away.
    pub(crate) fn failed(&mut self) -> (String, bool) {
        match self.answer() {
            FromHelper::Failed { why, gone, .. } => (why, gone),
            other => panic!("{other:?}"),
        }
    }

    /// What the helper has given to pods.
    pub(crate) fn path(&self, pod: &str) -> PathBuf {
        self.root.join("pods").join(pod).join("volumes/kubernetes.io~csi").join(VOLUME).join("mount")
    }

    /// Whether a pod has the volume.
    pub(crate) fn has(&self, pod: &str) -> bool {
        std::fs::read_to_string(self.path(pod).join("handle")).is_ok_and(|handle| handle == HANDLE)
    }

    /// Nothing is mounted or recorded any more.
    pub(crate) fn is_clean(&self) -> bool {
        let pods = std::fs::read_dir(self.root.join("pods")).unwrap().count();
        let staged = std::fs::read_dir(self.root.join("plugins/kubernetes.io/csi").join(DRIVER));
        pods == 0 && staged.map_or(0, Iterator::count) == 0 && mounts_below(&self.root).unwrap().is_empty()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.helper.take();
        for path in mounts_below(&self.root).unwrap_or_default().iter().rev() {
            let _ = unmount(path);
        }
    }
}

/// A volume for a pod.
pub(crate) fn volume(pod: &str) -> CsiMount {
    CsiMount {
        driver: DRIVER.into(),
        handle: HANDLE.into(),
        volume: VOLUME.into(),
        pod: CsiPod {
            uid: pod.into(),
            name: format!("{pod}-0"),
            namespace: "default".into(),
            service_account: "sa".into(),
        },
        source: json!({"fsType": "ext4", "volumeAttributes": {"share": "/a"}}),
        inline: false,
        access_modes: vec!["ReadWriteOnce".into()],
        mount_options: vec!["noatime".into()],
        block: false,
        read_only: false,
        fs_group: None,
        fs_group_on_root_mismatch: false,
        driver_object: json!({"attachRequired": false, "podInfoOnMount": true}),
        attachment: Value::Null,
        stage_secret: Value::Null,
        publish_secret: json!({"user": "YQ=="}),
        tokens: Value::Null,
        capacity: None,
    }
}

/// `csi_driver.py`.
pub(crate) struct Driver {
    _process: Process,
    state: PathBuf,
    pub(crate) registration: PathBuf,
}

impl Driver {
    pub(crate) fn start(node: &Node, name: &str) -> Self {
        let state = node.folder.path().join(name);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/csi_driver.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(&node.root).arg(name).arg(&state);
        command.env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1");
        let registration = node.root.join("plugins_registry").join(format!("{name}-reg.sock"));
        Self { _process: Process(command.spawn().unwrap()), state, registration }
    }

    /// The next call of this method stops before or after its effect.
    pub(crate) fn hold(&self, method: &str, point: &str) {
        // Whole when it is there.
        std::fs::write(self.state.join("hold.new"), format!("{method} {point}")).unwrap();
        std::fs::rename(self.state.join("hold.new"), self.state.join("hold")).unwrap();
    }

    pub(crate) fn wait_held(&self) {
        until("a call is held", || self.state.join("held").exists());
    }

    pub(crate) fn release(&self) {
        std::fs::remove_file(self.state.join("held")).unwrap();
    }

    pub(crate) fn fail(&self, method: &str) {
        std::fs::write(self.state.join("fail"), method).unwrap();
    }

    /// The next answer to this method is longer than any may be.
    pub(crate) fn flood(&self, method: &str) {
        std::fs::write(self.state.join("flood"), method).unwrap();
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.state.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The last publication as the driver has read it.
    pub(crate) fn seen(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.state.join("seen")).unwrap()).unwrap()
    }
}
