//! Files of a process inside a container on the host while it runs, and how it is ended with its children and session.
//! Does not know its input and output.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use crate::sys::family::kill_all;
use crate::sys::gather::Gather;
use crate::sys::pidfd;
use sampan_monitor::oci;

/// Kills what still runs when it is dropped, and removes its folder.
pub(super) struct Process {
    pub(super) folder: PathBuf,
    /// Pid of the runtime, a child of ours; zero before its start, and once it has returned: the process has ended
    /// then.
    pub(super) runtime_pid: i32,
}

impl Process {
    /// A folder of its own for the runtime's pid file and log, beside its `--root`.
    pub(super) fn new(runtime_root: &Path, container: &str) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{container}.{}-{number}", std::process::id());
        let folder = runtime_root.with_file_name("exec").join(name);
        // The folder above may be passed by pods' own users.
        crate::sys::files::private_dir(&folder)?;
        Ok(Self { folder, runtime_pid: 0 })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The runtime is ours and not reaped yet, so its pid still is its own, and what it has started is below it;
        // unless another process has killed only the runtime.
        let runtime = (self.runtime_pid != 0).then_some(self.runtime_pid);
        let doomed: BTreeSet<i32> = runtime.into_iter().chain(left_behind(&self.folder)).into_set();
        if !doomed.is_empty() {
            kill_all(&doomed);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Kills processes that a former daemon has left in containers: their output is no longer read. Call it at the start of
/// the daemon, before any [`super::exec`].
pub fn sweep(runtime_root: &Path) {
    let folder = runtime_root.with_file_name("exec");
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        if let Some(pid) = left_behind(&entry.path()) {
            kill_all(&BTreeSet::from([pid]));
        }
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            log::warn!("{}: {error}", entry.path().display());
        }
    }
}

/// The process of a former daemon's folder, if the pid still is that: the leader of a session in the container.
fn left_behind(folder: &Path) -> Option<i32> {
    let (container, _) = folder.file_name()?.to_str()?.rsplit_once('.')?;
    let pid = oci::read_pid(folder).ok()??;
    let is_leader = pidfd::stat(pid)?.session == pid;
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    (is_leader && cgroups.contains(container)).then_some(pid)
}
