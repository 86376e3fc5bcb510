//! A real registry on loopback, with or without a login, filled by skopeo.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::ports::free_address;
use crate::process::Process;
use crate::{can_run, until};

/// `user` with the password `secret`; a file, because making a bcrypt hash needs another tool.
const HTPASSWD: &str = "user:$2b$05$l1afwYR8GhB6WejrODJ9O.1VdARFYaLmp0N.rnWE2eLFbamUsQHjW\n";

/// Ends when it is dropped; its images are in the folder.
pub struct Registry {
    pub address: SocketAddr,
    folder: PathBuf,
    login: bool,
    /// `None` while it is stopped.
    process: Option<Process>,
}

/// Whether this host has what tests with a registry need.
#[must_use]
pub fn tools() -> bool {
    let installed = |program: &str| Command::new(program).arg("--version").output().is_ok();
    can_run() && installed("docker-registry") && installed("skopeo")
}

impl Registry {
    /// # Panics
    /// It does not listen within 15 s.
    #[must_use]
    pub fn start(folder: &Path, login: bool) -> Self {
        let mut registry = Self { address: free_address(), folder: folder.into(), login, process: None };
        let passwords = folder.join("htpasswd");
        std::fs::write(&passwords, HTPASSWD).expect("written");
        let mut config = json!({"version": 0.1, "log": {"level": "warn"},
            "http": {"addr": registry.address.to_string()},
            "storage": {"filesystem": {"rootdirectory": folder.join("registry")}}});
        if login {
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": passwords}});
        }
        std::fs::write(folder.join("registry.yml"), config.to_string()).expect("written");
        registry.resume();
        registry
    }

    /// Starts it again.
    ///
    /// # Panics
    /// It does not listen within 15 s.
    pub fn resume(&mut self) {
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(self.folder.join("registry.yml"));
        self.process = Some(Process::start(&mut command, &self.folder.join("registry.log")));
        until(Duration::from_secs(15), "the registry listens", || {
            std::net::TcpStream::connect(self.address).map(drop).map_err(|error| error.to_string())
        });
    }

    /// Ends it.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Pushes an archive as `name` (with a tag).
    ///
    /// # Panics
    /// skopeo fails.
    pub fn push(&self, archive: &Path, name: &str) {
        let (from, to) = (format!("docker-archive:{}", archive.display()), format!("docker://{}/{name}", self.address));
        let mut command = Command::new("skopeo");
        command.args(["copy", "-q", "--insecure-policy", "--dest-tls-verify=false"]);
        if self.login {
            command.args(["--dest-creds", "user:secret"]);
        }
        let output = command.args([&from, &to]).output().expect("skopeo starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Makes an image archive like the one of all tests, with `more` at the end of its program: content that no node has.
///
/// # Panics
/// It cannot be made.
#[must_use]
pub fn archive(folder: &Path, more: &str) -> PathBuf {
    let (program, archive) = (folder.join(format!("busybox-{more}")), folder.join(format!("{more}.tar")));
    let mut bytes = std::fs::read("/bin/busybox").expect("busybox-static");
    bytes.extend(more.as_bytes());
    std::fs::write(&program, bytes).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("a mode");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lib/make-busybox-image.sh");
    let made = Command::new(script).arg(&archive).arg(format!("{more}:1")).env("BUSYBOX", &program).status();
    assert!(made.expect("the script starts").success());
    archive
}
