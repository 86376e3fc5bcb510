//! Runs a process inside a running container and waits for it: exec probes and lifecycle hooks.
//!
//! The OCI runtime's `exec` is started by the daemon itself: a probe that dies with the daemon does no harm, and
//! the monitor stays small.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smol::Async;
use smol::future::{or, yield_now};
use smol::io::AsyncReadExt;
use smol::process::{Command, Stdio};
use thiserror::Error;

use super::{pidfd, runtime};

/// Output beyond this is read and thrown away (the kubelet's limit for probes).
pub const OUTPUT_CAP: usize = 10 * 1024;

/// Which OCI runtime keeps the container.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub program: PathBuf,
    /// `--root`.
    pub root: PathBuf,
    pub args: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit code of the process; 128 + signal for a death by signal.
    pub code: i32,
    /// stdout and stderr mixed, at most [`OUTPUT_CAP`] bytes.
    pub output: Vec<u8>,
}

#[derive(Debug, Error)]
pub enum ExecError {
    /// The process and its children in the container were killed.
    #[error("command timed out after {0:?}")]
    TimedOut(Duration),
    /// The OCI runtime could not start the process: no such executable, container gone, ...
    #[error("{0}")]
    NotStarted(String),
    #[error("running the OCI runtime {program}: {source}")]
    Runtime { program: PathBuf, source: io::Error },
}

/// Runs `argv` in container `id` with the environment, user and folder of its first process. Dropping the future
/// kills the process as the timeout does. A process that it leaves in the background with its output open holds the
/// answer up, because the OCI runtime waits for it.
///
/// Needs [`smol::process::driver`] to run somewhere, as it does beside [`super::client::MonitorClient`].
///
/// # Errors
/// It could not be started, or took longer than `timeout`.
pub async fn exec(runtime: &Runtime, id: &str, argv: &[String], timeout: Duration) -> Result<Output, ExecError> {
    let failed = |source| ExecError::Runtime { program: runtime.program.clone(), source };
    let folder = folder(&runtime.root).map_err(failed)?;
    let mut process = Process { pid_file: folder.join("pid"), folder, runtime_pid: 0 };
    let (reader, writer) = io::pipe().map_err(failed)?;
    let mut command = Command::new(&runtime.program);
    command.arg("--root").arg(&runtime.root).args(&runtime.args);
    command.arg("--log").arg(runtime::log_file(&process.folder)).args(["--log-format", "json"]);
    command.args(["exec", "--pid-file"]).arg(&process.pid_file).arg(id).args(argv);
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    // It holds our copies of the pipe's writing end.
    drop(command);
    process.runtime_pid = i32::try_from(child.id()).unwrap_or(0);

    let mut reader = Async::new(reader).map_err(failed)?;
    let mut output = Vec::new();
    let ended = or(async { Some(child.status().await) }, async {
        collect(&mut reader, &mut output).await;
        // The process has closed its output and runs on.
        std::future::pending().await
    });
    let timer = async {
        smol::Timer::after(timeout).await;
        None
    };
    let Some(status) = or(ended, timer).await else {
        return Err(ExecError::TimedOut(timeout));
    };
    let status = status.map_err(failed)?;
    process.runtime_pid = 0;
    // What was written last is in the pipe.
    or(collect(&mut reader, &mut output), yield_now()).await;
    let message = runtime::failure(&process.folder, "");
    match status.code() {
        Some(0) => {}
        Some(_) if runtime::has_failed(&process.folder) => return Err(ExecError::NotStarted(message)),
        _ => {}
    }
    let code =
        status.code().unwrap_or_else(|| 128 + std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(9));
    Ok(Output { code, output })
}

/// Reads to the end; keeps the first [`OUTPUT_CAP`] bytes.
async fn collect(reader: &mut Async<io::PipeReader>, output: &mut Vec<u8>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = reader.read(&mut chunk).await {
        let room = OUTPUT_CAP - output.len();
        output.extend_from_slice(&chunk[..count.min(room)]);
    }
}

/// A folder of its own for the runtime's pid file and log, beside its `--root`.
fn folder(runtime_root: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = runtime_root.with_file_name("exec").join(format!("{}-{number}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Kills what still runs when it is dropped, and removes the folder.
struct Process {
    folder: PathBuf,
    pid_file: PathBuf,
    /// Zero once the runtime has returned.
    runtime_pid: i32,
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.runtime_pid != 0 {
            self.kill();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Process {
    fn kill(&self) {
        let pid = fs::read_to_string(&self.pid_file).ok().and_then(|text| text.trim().parse::<i32>().ok());
        // Its parent is the runtime, which is ours and not reaped yet: the pid is still the process's.
        let mut doomed: Vec<i32> = pid
            .filter(|pid| pidfd::stat(*pid).is_some_and(|stat| stat.parent == self.runtime_pid))
            .into_iter()
            .collect();
        let mut next = 0;
        while let Some(pid) = doomed.get(next) {
            doomed.extend(children(*pid));
            next += 1;
        }
        doomed.push(self.runtime_pid);
        for pid in doomed {
            if let Ok(pidfd) = pidfd::open(pid) {
                // Gone meanwhile is as good.
                let _ = pidfd::signal(&pidfd, nix::libc::SIGKILL);
            }
        }
    }
}

fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
