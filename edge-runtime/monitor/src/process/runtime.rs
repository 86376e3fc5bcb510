//! The OCI runtime's command lines in the monitor: the only caller of its `run` and `delete`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{fs, io};

use super::{console, stdio};
use crate::oci::{log_file, pid_file};
use crate::protocol::StartContainer;
use sampan_sys::{descriptors, signal};

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
    // The variable of the daemon's unit. runc would treat it as its own and wait until the container's program says
    // READY=1 there.
    command.env_remove("NOTIFY_SOCKET");
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

/// Where runc, crun and youki keep what they know of a container.
pub(crate) fn state_folder(spec: &StartContainer) -> PathBuf {
    spec.runtime_root.join(&spec.id)
}
