//! Which controllers exist and where their hierarchies are mounted.

use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::types::{CgroupError, CgroupVersion};

/// One mounted v1 hierarchy or the v2 tree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    /// Controllers, or the name of a v1 hierarchy without any (`name=systemd`).
    controllers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchies {
    pub(super) version: CgroupVersion,
    mounted: Vec<Hierarchy>,
}

impl Hierarchies {
    pub(super) fn detect(mount_point: &Path) -> Result<Self, CgroupError> {
        let not_mounted = || CgroupError::NotMounted(mount_point.to_path_buf());
        if statfs(mount_point).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC) {
            let path = mount_point.join("cgroup.controllers");
            let text =
                std::fs::read_to_string(&path).map_err(|source| CgroupError::Path { action: "read", path, source })?;
            let controllers = text.split_whitespace().map(str::to_string).collect();
            let mounted = vec![Hierarchy { mount: mount_point.to_path_buf(), controllers }];
            return Ok(Self { version: CgroupVersion::V2, mounted });
        }
        let table = std::fs::read_to_string("/proc/self/mountinfo").map_err(|_| not_mounted())?;
        let mounted = v1_mounts(&table, mount_point);
        if mounted.is_empty() {
            return Err(not_mounted());
        }
        Ok(Self { version: CgroupVersion::V1, mounted })
    }

    pub(super) fn absent() -> Self {
        Self { version: CgroupVersion::V2, mounted: Vec::new() }
    }

    /// A hierarchy without controllers.
    pub(super) fn at(mount: &Path) -> Self {
        let mounted = vec![Hierarchy { mount: mount.to_path_buf(), controllers: Vec::new() }];
        Self { version: CgroupVersion::V2, mounted }
    }

    /// Where `controller` is mounted; `None` if the kernel does not have it, or has it disabled.
    pub(super) fn of(&self, controller: &str) -> Option<&Path> {
        let found = self.mounted.iter().find(|one| one.controllers.iter().any(|name| name == controller));
        found.map(|one| one.mount.as_path())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        self.mounted.iter().map(|one| one.mount.as_path())
    }

    /// A hierarchy in which the OCI runtime places every container's processes.
    pub(super) fn for_processes(&self) -> Option<&Path> {
        ["pids", "memory", "cpu"].into_iter().find_map(|name| self.of(name)).or_else(|| self.all().next())
    }

    /// Controllers we hand down the v2 tree; cpuset and io are for containers only.
    pub(super) fn controllers(&self) -> Vec<&'static str> {
        ["cpu", "memory", "pids", "cpuset", "io"].into_iter().filter(|name| self.of(name).is_some()).collect()
    }
}

/// v1 hierarchies in mountinfo (`proc(5)`): mount point is field 5, behind the `-` stand type, source and options.
/// A controller mounted twice counts once, at its place below `mount_point`.
fn v1_mounts(mountinfo: &str, mount_point: &Path) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((front, back)) = line.split_once(" - ") else { continue };
        let mut back = back.split(' ');
        let (kind, options) = (back.next(), back.nth(1).unwrap_or_default());
        let Some(mount) = front.split(' ').nth(4).map(Path::new).filter(|mount| mount.starts_with(mount_point)) else {
            continue;
        };
        // A hybrid host's v2 tree has no controllers, but OCI runtimes may make folders in it.
        if !matches!(kind, Some("cgroup" | "cgroup2")) || found.iter().any(|one| one.mount == mount) {
            continue;
        }
        let general = ["rw", "nsdelegate", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"];
        let named = |option: &&str| !general.contains(option) && !option.starts_with("release_agent=");
        let controllers = options.split(',').filter(named).map(str::to_string).collect();
        found.push(Hierarchy { mount: mount.to_path_buf(), controllers });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_hierarchies_are_found_by_their_options() {
        let table = "30 29 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup rw\n\
            31 29 0:27 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd\n\
            32 29 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct\n\
            33 29 0:29 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory\n\
            34 29 0:29 / /other/memory rw - cgroup cgroup rw,memory\n";
        let mounted = v1_mounts(table, Path::new("/sys/fs/cgroup"));
        let hierarchies = Hierarchies { version: CgroupVersion::V1, mounted };
        assert_eq!(hierarchies.of("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(hierarchies.of("memory"), Some(Path::new("/sys/fs/cgroup/memory")));
        assert_eq!(hierarchies.of("pids"), None);
        assert_eq!(hierarchies.all().count(), 4);
        assert_eq!(hierarchies.for_processes(), Some(Path::new("/sys/fs/cgroup/memory")));
    }
}
