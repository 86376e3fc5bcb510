//! Folders and files of one cgroup tree: make, set, delegate, kill, remove.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use nix::libc;
use nix::sys::signal::{Signal, kill as send_signal};
use nix::unistd::Pid;

use super::types::CgroupError;

/// Leaf into which processes move that stand in the way of a controller (v2).
const LEAF: &str = "edge-runtime";
/// Maximum depth. Cgroups nest a few levels here; more is a mistake or an attack.
const MAX_DEPTH: usize = 16;

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    move |source| CgroupError::Path { action, path: path.to_path_buf(), source }
}

/// Makes a cgroup; fine when it exists. Parents are made when missing.
pub(super) fn make(path: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path).map_err(failed("make cgroup", path))
        }
        result => result.map_err(failed("make cgroup", path)),
    }
}

/// Writes an existing control file in one `write`, as the kernel wants it.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// Sets a value. A missing file means a kernel without that feature (bandwidth control is often left out on boards).
/// The pod then runs without the limit, as with a kubelet that does not enforce it.
pub(super) fn set(path: &Path, value: &str) -> Result<(), CgroupError> {
    match write(path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            log::debug!("{} does not exist: {value} is not set", path.display());
            Ok(())
        }
        result => result.map_err(failed("set", path)),
    }
}

/// Hands controllers down from `root` to the children of `group` (v2). Processes inside a cgroup on the way, which
/// the kernel forbids together with controllers below it, move into a leaf of it.
pub(super) fn delegate(root: &Path, group: &Path, controllers: &[&str]) -> Result<(), CgroupError> {
    let chain: Vec<&Path> = group.ancestors().take_while(|path| path.starts_with(root)).collect();
    for dir in chain.into_iter().rev() {
        let file = dir.join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&file).map_err(failed("read", &file))?;
        let enabled: Vec<&str> = enabled.split_whitespace().collect();
        let missing: Vec<&&str> = controllers.iter().filter(|name| !enabled.contains(name)).collect();
        // Only the real root, which has no such file, may have both processes and controllers below it.
        if !missing.is_empty() && dir.join("cgroup.type").exists() {
            evacuate(dir)?;
        }
        for controller in missing {
            match write(&file, &format!("+{controller}")) {
                // Not delegated to this process: pods run without it, and the node's condition reports that.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    log::warn!("cgroup controller {controller} is not available in {}", dir.display());
                }
                result => result.map_err(failed("enable a controller in", &file))?,
            }
        }
    }
    Ok(())
}

fn evacuate(dir: &Path) -> Result<(), CgroupError> {
    let leaf = dir.join(LEAF);
    let (from, to) = (dir.join("cgroup.procs"), leaf.join("cgroup.procs"));
    let standing = processes(&from).map_err(failed("read", &from))?;
    if !standing.is_empty() {
        make(&leaf)?;
    }
    for pid in standing {
        match write(&to, &pid.to_string()) {
            // Ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            result => result.map_err(failed("move processes to", &to))?,
        }
    }
    Ok(())
}

pub(super) fn processes(file: &Path) -> io::Result<Vec<Pid>> {
    let text = fs::read_to_string(file)?;
    // 0 stands for a process outside our pid namespace, which cannot be named.
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid > 0).map(Pid::from_raw).collect())
}

/// Names of the cgroups directly below `dir`; empty when it does not exist.
pub(super) fn children(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// SIGKILL for all processes in and below `dir`.
pub(super) fn kill(dir: &Path) -> Result<(), CgroupError> {
    // Kernel 5.14 and v2: in one go, and no fork escapes.
    if write(&dir.join("cgroup.kill"), "1").is_ok() {
        return Ok(());
    }
    kill_each(dir, MAX_DEPTH)
}

fn kill_each(dir: &Path, depth: usize) -> Result<(), CgroupError> {
    let file = dir.join("cgroup.procs");
    let found = match processes(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result.map_err(failed("read", &file))?,
    };
    for pid in found {
        // A process that ended meanwhile is as wanted.
        let _ = send_signal(pid, Signal::SIGKILL);
    }
    if depth > 0 {
        for child in children(dir) {
            kill_each(&dir.join(child), depth - 1)?;
        }
    }
    Ok(())
}

/// Removes a cgroup and those below it, the deepest first; no error if it does not exist.
pub(super) fn remove(dir: &Path) -> Result<(), CgroupError> {
    remove_below(dir, MAX_DEPTH)
}

fn remove_below(dir: &Path, depth: usize) -> Result<(), CgroupError> {
    // Usually empty: one call. EBUSY means processes or children.
    let error = match fs::remove_dir(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => error,
    };
    if !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOTEMPTY)) || depth == 0 {
        return Err(failed("remove cgroup", dir)(error));
    }
    for child in children(dir) {
        remove_below(&dir.join(child), depth - 1)?;
    }
    match fs::remove_dir(dir) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOTEMPTY)) => {
            Err(CgroupError::Busy(dir.to_path_buf()))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove cgroup", dir)(error)),
        _ => Ok(()),
    }
}

/// Value of `key` in a flat keyed file.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_matched_whole() {
        let text = "oom 3\noom_kill 2\noom_group_kill 9\n";
        assert_eq!(keyed(text, "oom_kill"), Some(2));
        assert_eq!(keyed(text, "oom"), Some(3));
        assert_eq!(keyed(text, "none"), None);
    }
}
