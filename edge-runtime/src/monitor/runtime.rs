//! The OCI runtime's command lines, and what can be learnt from its failures. The only caller of the runtime's
//! `run` and `delete`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::protocol::StartContainer;
use super::{console, stdio};
use crate::sys::{descriptors, signal};

/// Longest message told about a failed start.
const MESSAGE_CAP: usize = 2048;

/// Starts `run --detach`. The caller reaps the process. `lock` stays open in it and in what becomes the container,
/// until the container's own program is executed.
pub(crate) fn spawn_run(spec: &StartContainer, environment: &[(String, String)], lock: &fs::File) -> io::Result<i32> {
    let _ = fs::remove_file(pid_file(&spec.bundle));
    let _ = fs::remove_file(log_file(&spec.bundle));
    let mut command = base(spec, environment);
    command.args(["run", "--detach", "--bundle"]).arg(&spec.bundle).arg("--pid-file").arg(pid_file(&spec.bundle));
    if spec.terminal {
        command.current_dir(&spec.bundle).arg("--console-socket").arg(console::path(&spec.bundle));
    } else if spec.stdin {
        command.stdin(stdio::container_stdin(&spec.bundle, spec.stdin_once)?);
    }
    command.arg(&spec.id);
    command.stdout(stdio::container_end(&spec.bundle, "stdout")?);
    command.stderr(stdio::container_end(&spec.bundle, "stderr")?);
    set_inherited(lock, true)?;
    let spawned = spawn(&mut command);
    set_inherited(lock, false)?;
    spawned
}

/// Starts `delete --force`, which also kills what runs. The caller reaps the process.
pub(crate) fn spawn_delete(spec: &StartContainer, environment: &[(String, String)]) -> io::Result<i32> {
    let mut command = base(spec, environment);
    command.args(["delete", "--force"]).arg(&spec.id).stdout(Stdio::null()).stderr(Stdio::null());
    spawn(&mut command)
}

fn base(spec: &StartContainer, environment: &[(String, String)]) -> Command {
    let mut command = Command::new(&spec.runtime);
    command.arg("--root").arg(&spec.runtime_root).args(&spec.runtime_args);
    command.args([
        OsStr::new("--log"),
        log_file(&spec.bundle).as_os_str(),
        OsStr::new("--log-format"),
        OsStr::new("json"),
    ]);
    command.envs(environment.iter().map(|(k, v)| (k, v)));
    // The daemon may have removed the bundle's folder by the time of a delete; run from a place that stays.
    command.current_dir("/").stdin(Stdio::null());
    command
}

fn spawn(command: &mut Command) -> io::Result<i32> {
    signal::unmask(command);
    descriptors::restore(command);
    i32::try_from(command.spawn()?.id()).map_err(io::Error::other)
}

fn set_inherited(file: &fs::File, inherited: bool) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let flag = if inherited { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    fcntl(file, FcntlArg::F_SETFD(flag))?;
    Ok(())
}

/// Written by the runtime once the container runs.
pub(crate) fn pid_file(bundle: &Path) -> PathBuf {
    bundle.join("pid")
}

pub(crate) fn log_file(bundle: &Path) -> PathBuf {
    bundle.join("runtime.log")
}

/// What it has written there; none while it has not.
///
/// # Errors
/// It cannot be known: no descriptor or memory is left.
pub(crate) fn read_pid(bundle: &Path) -> io::Result<Option<i32>> {
    let text = descriptors::unless_short(fs::read_to_string(pid_file(bundle)))?;
    Ok(text.and_then(|text| text.trim().parse().ok()))
}

/// Where runc, crun and youki keep what they know of a container.
pub(crate) fn state_folder(spec: &StartContainer) -> PathBuf {
    spec.runtime_root.join(&spec.id)
}

/// Why a start failed: the last error of the runtime's log, else what it printed.
pub(crate) fn failure(bundle: &Path, printed: &str) -> String {
    let log = fs::read_to_string(log_file(bundle)).unwrap_or_default();
    let message = last_error(&log).unwrap_or_else(|| printed.to_owned());
    let message = if message.is_empty() { "the OCI runtime failed without a word".to_owned() } else { message };
    match message.char_indices().nth(MESSAGE_CAP) {
        Some((end, _)) => message[..end].to_owned(),
        None => message,
    }
}

/// Whether the runtime itself has logged an error in `folder`.
pub(crate) fn has_failed(folder: &Path) -> bool {
    fs::read_to_string(log_file(folder)).is_ok_and(|log| last_error(&log).is_some())
}

/// In logrus' words, as runc and crun write it, or in those of youki's tracing, which adds a stack to its last word.
fn last_error(log: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Line {
        level: String,
        #[serde(alias = "message")]
        msg: String,
    }
    let lines = log.lines().rev().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let errors = lines.filter(|l| ["error", "fatal"].iter().any(|level| l.level.eq_ignore_ascii_case(level)));
    let plain = |line: Line| line.msg.split("\n\nStack backtrace:").next().unwrap_or_default().trim().to_owned();
    errors.map(plain).find(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_the_log_is_told() {
        let log = concat!(
            "{\"level\":\"warning\",\"msg\":\"x\",\"time\":\"t\"}\n",
            "{\"level\":\"error\",\"msg\":\"runc run failed: exec: \\\"no\\\": not found\\n\",\"time\":\"t\"}\n",
            "{\"level\":\"debug\",\"msg\":\"y\"}\nnoise\n",
        );
        assert_eq!(last_error(log).unwrap(), "runc run failed: exec: \"no\": not found");
        let log =
            "{\"level\":\"ERROR\",\"message\":\"not found\\n\\nStack backtrace:\\n   0: x\",\"target\":\"youki\"}\n";
        assert_eq!(last_error(log).unwrap(), "not found");
        assert_eq!(last_error(""), None);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(failure(dir.path(), "said"), "said");
        assert_eq!(failure(dir.path(), &"é".repeat(5000)).chars().count(), MESSAGE_CAP);
    }
}
