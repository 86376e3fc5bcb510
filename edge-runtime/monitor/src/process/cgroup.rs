//! What the monitor reads and removes of a container's cgroup, on v1 and v2 alike. Creates nothing.

use std::path::{Path, PathBuf};
use std::{fs, io};

use sampan_sys::files::unless_missing;

const MOUNT: &str = "/sys/fs/cgroup";

/// Ends the names of units whose cgroups systemd takes away.
pub(crate) const SCOPE_END: &str = ".scope";

/// Number of OOM kills of the kernel in this cgroup; `None` if it does not exist (any more).
pub(crate) fn kills(cgroup: &str) -> Option<u64> {
    let relative = cgroup.trim_start_matches('/');
    let files = [
        Path::new(MOUNT).join("memory").join(relative).join("memory.oom_control"),
        Path::new(MOUNT).join(relative).join("memory.events"),
    ];
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| counted(&text))
}

fn counted(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|count| count.trim().parse().ok())
}

/// Removes the cgroup from every hierarchy. Fails while a process is in it.
pub(crate) fn remove(cgroup: &str) -> io::Result<()> {
    let relative = Path::new(cgroup.trim_start_matches('/'));
    // Never a hierarchy's root, or anything outside of it.
    if relative.components().count() == 0
        || !relative.components().all(|c| matches!(c, std::path::Component::Normal(_)))
    {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for hierarchy in hierarchies()? {
        unless_missing(fs::remove_dir(hierarchy.join(relative)))?;
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
        assert_eq!(counted("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), Some(1));
        assert_eq!(counted("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"), Some(0));
        assert_eq!(counted("low 0\nhigh 0\nmax 12\noom 1\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(counted(""), None);
    }

    #[test]
    fn roots_are_never_removed() {
        for path in ["", "/", "/..", "../x", "/a/../../b"] {
            // The kernel refuses some of them, too, with other errors.
            assert_eq!(remove(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
