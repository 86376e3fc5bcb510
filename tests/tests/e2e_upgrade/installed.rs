//! A node as a package installs it: the launcher, the programs beside it, and a supervisor that restarts the daemon
//! whenever it ends, as systemd does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::process::{Process, binary, signal};
use sampan_tests::{EdgeNode, until};
use serde_json::{Value, json};

/// Programs of a version.
const PROGRAMS: [&str; 5] = ["edge-runtime", "edge-admin", "edge-devices", "edge-api", "edge-plugins"];

pub(crate) struct Installed {
    supervisor: Process,
    main: PathBuf,
}

impl Installed {
    /// Installs the programs below `folder`, and starts the node's daemon under a supervisor.
    pub(crate) fn start(node: &EdgeNode, folder: &Path) -> Self {
        let (bin, lib) = (folder.join("usr/bin"), folder.join("usr/lib/edge-runtime"));
        if !lib.exists() {
            std::fs::create_dir_all(&bin).expect("a folder");
            std::fs::create_dir_all(&lib).expect("a folder");
            std::fs::copy(binary("edge-launcher"), bin.join("edge-runtime")).expect("copied");
            for name in PROGRAMS {
                strip(&binary(name), &lib.join(name));
            }
        }
        let script = "while :; do \"$0\" run --root \"$1\"; sleep 0.2; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(bin.join("edge-runtime")).arg(node.root());
        let supervisor = Process::start(&mut command, &node.root().join("daemon.log"));
        Self { supervisor, main: node.root().join("run/edge-runtime.launcher/main.json") }
    }

    /// Pid of the daemon, from the launcher's file.
    pub(crate) fn pid(&self) -> Option<u32> {
        let noted: Value = serde_json::from_slice(&std::fs::read(&self.main).ok()?).ok()?;
        let pid = u32::try_from(noted["pid"].as_u64()?).ok()?;
        let start = sampan_tests::process::start_time(pid)?.to_string();
        (noted["startTime"] == start.as_str()).then_some(pid)
    }

    /// The program file of the running daemon.
    pub(crate) fn program(&self) -> PathBuf {
        until(Duration::from_secs(30), "a daemon", || {
            let pid = self.pid().ok_or("none")?;
            let program = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(|error| error.to_string())?;
            // The launcher, before it executes the daemon.
            if program.ends_with("bin/edge-runtime") { Err("the launcher".to_owned()) } else { Ok(program) }
        })
    }

    /// Waits until the daemon runs this program file.
    pub(crate) fn wait_program(&self, program: &Path) {
        until(Duration::from_secs(40), &format!("{} runs", program.display()), || match self.program() {
            runs if runs == program => Ok(()),
            other => Err(other.display().to_string()),
        });
    }

    /// SIGKILL to the daemon.
    pub(crate) fn kill(&self) {
        if let Some(pid) = self.pid() {
            signal(pid, "KILL");
        }
    }

    /// Waits until the trial is over; returns its result.
    pub(crate) fn wait_outcome(&self, node: &EdgeNode, good: bool, reason: &str) {
        let state = node.root().join("var/lib/edge-runtime/versions/state.json");
        until(Duration::from_secs(90), "the end of the trial", || {
            let text = std::fs::read_to_string(&state).unwrap_or_default();
            let state: Value = serde_json::from_str(&text).unwrap_or_default();
            let said = state["last"]["reason"].as_str().unwrap_or_default();
            match state["trial"].is_null() && state["last"]["good"] == good && said.contains(reason) {
                true => Ok(()),
                false => Err(format!("{text}\n{}", node.log())),
            }
        });
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.supervisor.kill();
        self.kill();
    }
}

fn strip(from: &Path, to: &Path) {
    let done = Command::new("strip").arg("-o").arg(to).arg(from).status().expect("strip starts");
    assert!(done.success());
}

/// An archive with a version of the programs.
pub(crate) struct Bundle {
    folder: PathBuf,
    file: PathBuf,
}

impl Bundle {
    /// This build's programs, under another version name.
    pub(crate) fn good(folder: &Path, name: &str) -> Self {
        let bundle = Self::files(folder, name);
        let devices = bundle.folder.join("edge-devices");
        let mut bytes = std::fs::read(&devices).expect("read");
        bytes.extend(name.as_bytes());
        std::fs::write(&devices, bytes).expect("written");
        bundle.pack(&json!({}))
    }

    /// A bundle whose daemon is a shell script: it answers the checks like the real one, and otherwise runs `run`.
    pub(crate) fn script(folder: &Path, name: &str, run: &str) -> Self {
        let bundle = Self::files(folder, name);
        let daemon = bundle.folder.join("edge-runtime");
        let real = folder.join("usr/lib/edge-runtime/edge-runtime");
        let text = format!(
            "#!/bin/sh\nREAL={}\ncase \"$*\" in run*--print-config*) ;; run*) {run} ;; esac\nexec \"$REAL\" \"$@\"\n",
            real.display()
        );
        std::fs::remove_file(&daemon).expect("removed");
        std::fs::write(&daemon, text).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&daemon, mode).expect("a mode");
        bundle.pack(&json!({}))
    }

    fn files(folder: &Path, name: &str) -> Self {
        let (files, file) = (folder.join(format!("bundle-{name}")), folder.join(format!("{name}.tar")));
        std::fs::create_dir_all(&files).expect("a folder");
        for program in PROGRAMS {
            std::fs::copy(folder.join("usr/lib/edge-runtime").join(program), files.join(program)).expect("copied");
        }
        Self { folder: files, file }
    }

    /// Writes the manifest, with these fields instead of its own, and the archive.
    pub(crate) fn pack(self, other: &Value) -> Self {
        let sums = PROGRAMS.map(|name| (name.to_owned(), Value::from(sha256(&self.folder.join(name)))));
        let said = Command::new(binary("edge-runtime")).arg("version").output().expect("starts");
        let version = String::from_utf8_lossy(&said.stdout).split_whitespace().nth(1).unwrap_or_default().to_owned();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let mut manifest = json!({"version": version, "architecture": architecture,
            "files": serde_json::Map::from_iter(sums)});
        for (name, value) in other.as_object().into_iter().flatten() {
            manifest[name] = value.clone();
        }
        std::fs::write(self.folder.join("manifest.json"), manifest.to_string()).expect("written");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&self.folder).arg("-cf").arg(&self.file).arg("manifest.json").args(PROGRAMS);
        assert!(tar.status().expect("tar starts").success());
        self
    }

    pub(crate) fn path(&self) -> String {
        self.file.display().to_string()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

pub(crate) fn sha256(file: &Path) -> String {
    let said = Command::new("sha256sum").arg(file).output().expect("sha256sum starts");
    String::from_utf8_lossy(&said.stdout).split(' ').next().unwrap_or_default().to_owned()
}
