//! A program under test: started in the background, with a log, stopped when dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::wait::until;

/// A running program of the tests.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; both its outputs go to the end of `log`.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("the log can be opened");
        let copy = file.try_clone().expect("a file can be cloned");
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        Self { child, log: log.to_path_buf() }
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, as a crash or the kernel's out-of-memory killer would.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM, then waits.
    ///
    /// # Panics
    /// It does not end within ten seconds.
    pub fn stop(&mut self) {
        let _ = Command::new("kill").arg(self.pid().to_string()).status();
        until(Duration::from_secs(10), "the program ends", || match self.child.try_wait() {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    #[must_use]
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal (`KILL`, `STOP`) to one process.
///
/// # Panics
/// The process does not exist.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status().expect("kill starts");
    assert!(sent.success(), "SIG{name} to {pid}");
}

/// Start time of a process, in clock ticks since boot: unique together with its pid.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself contain spaces and parentheses.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Pids of the processes of a helper that serve this root, by its program and its socket in `run/edge-runtime`.
///
/// # Panics
/// The host has no `/proc`.
#[must_use]
pub fn helpers(root: &Path, program: &str, socket: &str) -> Vec<u32> {
    let socket = root.join("run/edge-runtime").join(socket).display().to_string();
    let pids = std::fs::read_dir("/proc").expect("procfs").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(program) && line.contains(&socket)
    };
    pids.filter(is_it).collect()
}

/// Path of one of the project's binaries.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let default = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/debug"));
    std::env::var_os("SAMPAN_BIN").map_or_else(default, PathBuf::from).join(name)
}
