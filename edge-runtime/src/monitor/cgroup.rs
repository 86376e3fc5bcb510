//! What the monitor reads and removes of a container's cgroup, on v1 and v2 alike. Creates nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";

/// Whether the kernel has killed in this cgroup for want of memory.
pub(crate) fn oom_killed(cgroup: &str) -> bool {
    let relative = cgroup.trim_start_matches('/');
    let files = [
        Path::new(MOUNT).join("memory").join(relative).join("memory.oom_control"),
        Path::new(MOUNT).join(relative).join("memory.events"),
    ];
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).any(|text| counts_a_kill(&text))
}

fn counts_a_kill(text: &str) -> bool {
    text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
}

/// Removes the cgroup from every hierarchy. Fails while a process is in it.
pub(crate) fn remove(cgroup: &str) -> io::Result<()> {
    let relative = Path::new(cgroup.trim_start_matches('/'));
    // Never a hierarchy's root, nor anything outside of it.
    if relative.components().count() == 0
        || !relative.components().all(|c| matches!(c, std::path::Component::Normal(_)))
    {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for hierarchy in hierarchies()? {
        match fs::remove_dir(hierarchy.join(relative)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

fn hierarchies() -> io::Result<Vec<PathBuf>> {
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return Ok(vec![mount.to_path_buf()]);
    }
    // Links (`cpu` to `cpu,cpuacct`) lead to hierarchies that are listed anyway.
    Ok(fs::read_dir(mount)?.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted_in_both_formats() {
        assert!(counts_a_kill("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"));
        assert!(!counts_a_kill("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"));
        assert!(counts_a_kill("low 0\nhigh 0\nmax 12\noom 1\noom_kill 2\noom_group_kill 0\n"));
        assert!(!counts_a_kill(""));
    }

    #[test]
    fn roots_are_never_removed() {
        for path in ["", "/", "/..", "../x", "/a/../../b"] {
            assert!(remove(path).is_err(), "{path}");
        }
    }
}
