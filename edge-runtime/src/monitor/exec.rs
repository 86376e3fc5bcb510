//! Runs a process inside a running container: [`exec`] waits for exec probes and lifecycle hooks; a [`session`] serves
//! a client at the other end of a stream.
//!
//! The OCI runtime's `exec` is started by the daemon itself: a probe that dies with the daemon does no harm, and
//! the monitor stays small.

pub mod output;
mod process;
pub mod session;
pub mod terminal_process;

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use smol::future::{or, yield_now, zip};
use smol::io::AsyncReadExt;
use smol::process::Command;
use thiserror::Error;

use crate::sys::descriptors;
use process::Process;
pub use process::sweep;
use sampan_monitor::oci;
use session::{Session, Wanted};

/// Output beyond this is read and thrown away (the kubelet's limit for probes).
pub const OUTPUT_CAP: usize = 10 * 1024;

/// Which OCI runtime keeps the container.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub program: PathBuf,
    /// `--root`.
    pub root: PathBuf,
    pub args: Vec<String>,
    /// Where further processes of a container begin, unless in `/`. runc takes it from the container itself, crun 1.8
    /// does not.
    pub cwd: Option<String>,
    /// Bundle of the container.
    pub bundle: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit code of the process; 128 + signal for a death by signal.
    pub code: i32,
    /// stdout and then stderr, at most [`OUTPUT_CAP`] bytes. The OCI runtime copies both in any order, but the output
    /// of a probe must not vary (K8s pkg/kubelet/kuberuntime, `RunInContainer`).
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
    let wanted = Wanted { stdout: true, stderr: true, ..Wanted::default() };
    let (mut session, streams) = Session::start(runtime, id, argv, wanted)?;
    let mut readers = [streams.stdout, streams.stderr];
    let mut outputs = [Vec::new(), Vec::new()];
    let ended = or(async { Some(session.ended().await) }, async {
        collect(&mut readers, &mut outputs).await;
        // The process has closed its output and runs on.
        std::future::pending().await
    });
    let timer = async {
        smol::Timer::after(timeout).await;
        None
    };
    let Some(code) = or(ended, timer).await else {
        return Err(ExecError::TimedOut(timeout));
    };
    let code = code?;
    // The last output is still in the pipes.
    or(collect(&mut readers, &mut outputs), yield_now()).await;
    let [mut output, errors] = outputs;
    output.extend(errors);
    output.truncate(OUTPUT_CAP);
    Ok(Output { code, output })
}

impl Runtime {
    /// `exec` with all but its own flags, the container and the command.
    fn exec(&self, process: &Process) -> Command {
        let mut words = self.beginning(Path::new("/proc/self/exe"));
        let mut command = descriptors::command(words.next().unwrap_or_default());
        command.args(words).arg("--root").arg(&self.root).args(&self.args);
        command.arg("--log").arg(oci::log_file(&process.folder)).args(["--log-format", "json"]);
        command.arg("exec").args(self.cwd_args()).arg("--pid-file").arg(oci::pid_file(&process.folder));
        command
    }

    /// Program and first arguments. A process of runc has the container's `oom_score_adj`. A process of crun has crun's
    /// own, which is the node's: `node`, the daemon's program, sets the container's.
    pub fn beginning<'a>(&'a self, node: &'a Path) -> impl Iterator<Item = &'a OsStr> {
        let own = self.program.file_name().is_some_and(|name| name == "runc") || self.bundle.as_os_str().is_empty();
        let before = [node.as_os_str(), "as-container".as_ref(), self.bundle.as_os_str()];
        before.into_iter().filter(move |_| !own).chain([self.program.as_os_str()])
    }

    /// The flag of `exec` that says where the process begins.
    pub fn cwd_args(&self) -> impl Iterator<Item = &str> {
        self.cwd.iter().flat_map(|cwd| ["--cwd", cwd])
    }
}

/// Exit code as shells count it: 128 + signal for a death by signal.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(9))
}

/// Reads both to the end; keeps the first [`OUTPUT_CAP`] bytes of each.
async fn collect(readers: &mut [Option<output::Output>; 2], outputs: &mut [Vec<u8>; 2]) {
    let ([out, err], [output, errors]) = (readers, outputs);
    zip(collect_one(out, output), collect_one(err, errors)).await;
}

async fn collect_one(reader: &mut Option<output::Output>, output: &mut Vec<u8>) {
    let Some(reader) = reader else { return };
    let mut chunk = [0; 2048];
    while let Ok(count @ 1..) = reader.read(&mut chunk).await {
        let room = OUTPUT_CAP - output.len();
        output.extend_from_slice(&chunk[..count.min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runc_is_started_as_it_is() {
        let words = |program: &str| {
            let (program, bundle) = (program.into(), "/b".into());
            let runtime = Runtime { program, root: PathBuf::new(), args: Vec::new(), cwd: None, bundle };
            runtime.beginning(Path::new("/bin/edge-runtime")).map(OsStr::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words("/usr/sbin/runc"), ["/usr/sbin/runc"]);
        assert_eq!(words("crun"), ["/bin/edge-runtime", "as-container", "/b", "crun"]);
    }
}
