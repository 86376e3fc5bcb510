//! A small ext4 file system, to be filled.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct SmallDisk {
    mounted: PathBuf,
}

impl SmallDisk {
    /// Creates and mounts it at `at`; `image` is its file. `None` without loop devices.
    pub(crate) fn mount(image: &Path, at: &Path, megabytes: u64) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a folder");
        std::fs::File::create(image).and_then(|file| file.set_len(megabytes << 20)).expect("a sparse file");
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(image).status();
        let mounted = Command::new("mount").args(["-o", "loop"]).arg(image).arg(at).status();
        let ok = |status: std::io::Result<std::process::ExitStatus>| status.is_ok_and(|status| status.success());
        (ok(made) && ok(mounted)).then(|| Self { mounted: at.to_path_buf() })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.mounted).status();
    }
}
