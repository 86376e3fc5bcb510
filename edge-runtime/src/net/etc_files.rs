//! Writes what tells a pod its names (`hosts`, `hostname`, `resolv.conf`) and its shared memory, in one folder.
//!
//! The folder lies on a tmpfs: none of it outlives the pod's namespaces.

use std::fs;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::NetError;
use super::namespaces::unmount_all;

pub const HOSTS: &str = "hosts";
pub const HOSTNAME: &str = "hostname";
pub const RESOLV_CONF: &str = "resolv.conf";
/// Mount point of the tmpfs that containers of one pod share as `/dev/shm`.
pub const SHM: &str = "shm";

/// Content of a pod's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcFiles {
    pub hosts: String,
    pub hostname: String,
    pub resolv_conf: String,
}

/// Writes what differs. Existing files are written in place, because running containers hold them by bind mount:
/// a renamed file would not reach them.
pub fn write(dir: &Path, files: &EtcFiles) -> Result<(), NetError> {
    for (name, content) in [(HOSTS, &files.hosts), (HOSTNAME, &files.hostname), (RESOLV_CONF, &files.resolv_conf)] {
        let path = dir.join(name);
        if fs::read(&path).is_ok_and(|old| old == content.as_bytes()) {
            continue;
        }
        fs::write(&path, content).map_err(|source| NetError::path("write", path, source))?;
    }
    Ok(())
}

/// Mounts the pod's shared `/dev/shm`, 64 MiB as container runtimes give it. Only pods with several containers need
/// one: a single container gets its own from the OCI runtime. Fine when it is mounted already.
pub fn mount_shm(dir: &Path) -> Result<(), NetError> {
    let path = dir.join(SHM);
    match fs::create_dir(&path) {
        // Left by an earlier attempt; mounted or not, start over: no container has run yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => unmount_all(&path)?,
        result => result.map_err(|source| NetError::path("create folder", &path, source))?,
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("shm"), &path, Some("tmpfs"), flags, Some("mode=1777,size=64m"))
        .map_err(|errno| NetError::path("mount shared memory at", path, errno))
}

/// Deletes the files and the shared memory; fine when there are none.
pub fn remove(dir: &Path) -> Result<(), NetError> {
    let shm = dir.join(SHM);
    unmount_all(&shm)?;
    let gone = |result: io::Result<()>, path: &Path| match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetError::path("delete", path, error)),
        _ => Ok(()),
    };
    gone(fs::remove_dir(&shm), &shm)?;
    for name in [HOSTS, HOSTNAME, RESOLV_CONF] {
        let path = dir.join(name);
        gone(fs::remove_file(&path), &path)?;
    }
    Ok(())
}
