//! State of the link for `edge-runtime status`: a small file below `/run`, which is not on a disk. It is written when
//! the connection begins or ends, and once per heartbeat. It stays when the daemon ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::paths::Paths;
use crate::sys::files::replace;
use crate::sys::from_json::from_json;

/// The link at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LinkStatus {
    /// The bridge that it talks to, or tried last.
    pub bridge: String,
    pub connected: bool,
    /// RFC 3339: since when it is connected, or is not.
    pub since: String,
    /// RFC 3339: time of the last message from a bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    /// Fencing number of the last connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Time from a ping to its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<u64>,
    /// Frames go compressed.
    pub compressed: bool,
    /// Why it is not connected.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Where it stands.
#[must_use]
pub fn file(paths: &Paths) -> PathBuf {
    paths.run().join("link.json")
}

impl LinkStatus {
    /// # Errors
    /// The file is missing or cannot be read.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        from_json(&std::fs::read(path)?).map_err(std::io::Error::other)
    }

    /// Whole or not at all. That it cannot be written must not stop the link.
    pub(super) fn write(&self, path: &Path) {
        let Ok(text) = serde_json::to_vec(self) else { return };
        if let Err(error) = replace(path, &text, false) {
            log::debug!("{}: {error}", path.display());
        }
    }
}

/// Wall-clock time of this long ago.
pub(super) fn ago(time: Duration) -> String {
    let at = Timestamp::now() - jiff::SignedDuration::try_from(time).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g30_the_status_survives_its_file_and_an_older_daemon() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("link.json");
        let status = LinkStatus {
            bridge: "https://b:1".into(),
            connected: true,
            since: ago(Duration::from_secs(5)),
            last_seen: Some(ago(Duration::ZERO)),
            epoch: Some(7),
            rtt_ms: Some(20),
            compressed: true,
            why: String::new(),
        };
        status.write(&path);
        assert_eq!(LinkStatus::read(&path).expect("reads"), status);
        std::fs::write(&path, r#"{"bridge":"x"}"#).expect("written");
        assert_eq!(LinkStatus::read(&path).expect("reads").bridge, "x");
        assert!(LinkStatus::read(&folder.path().join("none")).is_err());
    }
}
