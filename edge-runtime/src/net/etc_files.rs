//! Writes the files that tell a pod its names (`hosts`, `hostname`, `resolv.conf`), in one folder per pod.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::NetError;
use crate::sys::files::unless_missing;

pub const HOSTS: &str = "hosts";
pub const HOSTNAME: &str = "hostname";
pub const RESOLV_CONF: &str = "resolv.conf";

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
    fs::create_dir_all(dir).map_err(|source| NetError::path("create folder", dir, source))?;
    for (name, content) in [(HOSTS, &files.hosts), (HOSTNAME, &files.hostname), (RESOLV_CONF, &files.resolv_conf)] {
        let path = dir.join(name);
        if holds(&path, content.as_bytes()) {
            continue;
        }
        fs::write(&path, content).map_err(|source| NetError::path("write", &path, source))?;
        // Readable for any user of the pod, independent of the umask, as in the kubelet.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))
            .map_err(|source| NetError::path("set mode of", path, source))?;
    }
    Ok(())
}

/// The pod may have written any amount to it: reads only as much as needed.
fn holds(path: &Path, content: &[u8]) -> bool {
    let same_length = fs::symlink_metadata(path).is_ok_and(|old| usize::try_from(old.len()) == Ok(content.len()));
    same_length && fs::read(path).is_ok_and(|old| old == content)
}

/// Deletes the files; no error if they are missing.
pub fn remove(dir: &Path) -> Result<(), NetError> {
    for name in [HOSTS, HOSTNAME, RESOLV_CONF] {
        let path = dir.join(name);
        unless_missing(fs::remove_file(&path)).map_err(|error| NetError::path("delete", path, error))?;
    }
    Ok(())
}
