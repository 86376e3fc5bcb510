//! One observation of scarce resources: a handful of system calls, cheap enough for every ten seconds.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::signal::{Observations, Signal};
use crate::paths::Paths;
use crate::sys::host;

/// Whether images lie on a file system of their own.
pub fn separate_images(paths: &Paths) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    let (pods, images) = (device(&paths.state()), device(&paths.layers()));
    images.is_some() && pods != images
}

/// Observes all resources. Memory is the kernel's estimate of what is available without swapping. The kubelet computes
/// nearly the same from the root cgroup, which does not exist in that form on cgroup v1 hybrids and boards without the
/// memory controller.
pub fn observe(paths: &Paths, memory_bytes: u64) -> Observations {
    let mut seen = Observations::default();
    if let Some(available) = host::memory_available() {
        seen.set(Signal::MemoryAvailable, available, memory_bytes);
    }
    let places = [
        (paths.state(), Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        (paths.layers(), Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
    ];
    for (place, bytes, inodes) in places {
        let Some(space) = host::disk_space(&place) else { continue };
        // A ramfs has no size.
        if space.total_bytes > 0 {
            seen.set(bytes, space.available_bytes, space.total_bytes);
        }
        if space.total_inodes > 0 {
            seen.set(inodes, space.free_inodes, space.total_inodes);
        }
    }
    if let Some((used, most)) = host::pid_usage() {
        seen.set(Signal::PidAvailable, most.saturating_sub(used), most);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        std::fs::create_dir_all(paths.layers()).unwrap();
        let seen = observe(&paths, 1 << 30);
        for signal in [Signal::MemoryAvailable, Signal::NodeFsAvailable, Signal::ImageFsAvailable, Signal::PidAvailable]
        {
            assert!(seen.get(signal).is_some_and(|seen| seen.available > 0), "{signal:?}");
        }
        assert!(!separate_images(&paths));
    }
}
