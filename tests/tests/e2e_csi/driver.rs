//! A CSI driver as a process: csi_driver.py with Google's gRPC, which is told by files and tells by files.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use sampan_tests::until;
use serde_json::Value;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge-runtime/plugins/tests/csi_driver.py");
/// Until a call comes.
const SOON: Duration = Duration::from_secs(40);

/// Where Google's gRPC for Python is.
pub(super) fn packages() -> PathBuf {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/grpcio");
    std::env::var_os("SAMPAN_GRPCIO").map_or_else(|| usual.into(), PathBuf::from)
}

pub(super) struct Driver {
    child: Child,
    state: PathBuf,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // One that was held must not hold the next one.
        self.release();
    }
}

impl Driver {
    /// Starts a driver. Its volumes are folders in `FOLDER/NAME`.
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
        let state = folder.join(name);
        std::fs::create_dir_all(&state).expect("a folder");
        command.arg(SOURCE).arg(folder.join("kubelet")).arg(name).arg(&state);
        command.env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1");
        Self { child: command.spawn().expect("python3 is installed"), state }
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.state.join(file)).unwrap_or_default()
    }

    /// How often this method was called so far, by all drivers of this folder.
    pub(super) fn calls(&self, method: &str) -> usize {
        self.read("calls").lines().filter(|line| line.split(' ').next() == Some(method)).count()
    }

    /// What was wrong about calls.
    pub(super) fn wrong(&self) -> String {
        self.read("wrong")
    }

    /// What was told with the last publication.
    pub(super) fn publication(&self) -> Value {
        serde_json::from_str(&self.read("seen")).expect("JSON")
    }

    /// Has the next call of this method hang.
    pub(super) fn hold(&self, method: &str) {
        std::fs::write(self.state.join("hold"), format!("{method} before")).expect("written");
    }

    /// Waits until a call hangs.
    pub(super) fn wait_held(&self) {
        let held = self.state.join("held");
        until(SOON, "a call hangs", || if held.exists() { Ok(()) } else { Err(self.read("calls")) });
    }

    /// Ends that.
    pub(super) fn release(&self) {
        let _ = std::fs::remove_file(self.state.join("hold"));
        let _ = std::fs::remove_file(self.state.join("held"));
    }

    /// Reads a file in the volume of this handle; empty without one.
    pub(super) fn file(&self, handle: &str, file: &str) -> String {
        let mut folders = std::fs::read_dir(&self.state).expect("a folder").flatten().map(|entry| entry.path());
        let is_it = |folder: &PathBuf| std::fs::read_to_string(folder.join("handle")).is_ok_and(|own| own == handle);
        let Some(folder) = folders.find(is_it) else { return String::new() };
        std::fs::read_to_string(folder.join(file)).unwrap_or_default()
    }
}
