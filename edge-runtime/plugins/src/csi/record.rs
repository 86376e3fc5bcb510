//! `vol_data.json`: what is known of a volume without the daemon, beside its folder. The kubelet's keys (K8s
//! pkg/volume/csi/csi_plugin.go, `volDataKey`) and one of this node. Pure: no I/O.

use serde_json::{Value, json};

use super::paths::csi_name;
use super::volume::Volume;

/// Name of the file.
pub(super) const FILE: &str = "vol_data.json";
/// Longest file, bytes: a character of a handle takes up to six in JSON.
pub(super) const MAX_FILE: u64 = 64 << 10;
/// Key of a volume of a pod that is staged, or about to be, and that no driver was asked to publish yet. The kubelet
/// writes this file after staging.
const UNPUBLISHED: &str = "unpublished";

/// A volume that is staged, or that a pod has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) driver: String,
    pub(crate) handle: String,
    /// Name of the PersistentVolume, or of an inline volume.
    pub(crate) volume: String,
    pub(crate) node: String,
    pub(crate) inline: bool,
    /// The driver may have been asked to publish it.
    pub(crate) published: bool,
}

impl Record {
    pub(super) fn new(volume: &Volume, node: &str, published: bool) -> Self {
        Self {
            driver: volume.driver.clone(),
            handle: volume.handle.clone(),
            volume: volume.target.volume.clone(),
            node: node.to_owned(),
            inline: volume.inline,
            published,
        }
    }

    /// Whether both are of one volume of a driver.
    pub(super) fn is_of(&self, driver: &str, handle: &str) -> bool {
        self.driver == driver && self.handle == handle
    }

    pub(super) fn written(&self) -> Vec<u8> {
        let mut record = json!({
            "specVolID": self.volume,
            "volumeHandle": self.handle,
            "driverName": self.driver,
            "nodeName": self.node,
            "attachmentID": csi_name(&[&self.handle, &self.driver, &self.node]),
            "volumeLifecycleMode": if self.inline { "Ephemeral" } else { "Persistent" },
        });
        if !self.published
            && let Some(record) = record.as_object_mut()
        {
            record.insert(UNPUBLISHED.to_owned(), "true".into());
        }
        record.to_string().into_bytes()
    }

    /// Parses a record.
    ///
    /// # Errors
    /// The text says what is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let record: Value = serde_json::from_slice(bytes).map_err(|error| format!("not a volume record: {error}"))?;
        let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
        let read = Self {
            driver: text("driverName"),
            handle: text("volumeHandle"),
            volume: text("specVolID"),
            node: text("nodeName"),
            inline: record["volumeLifecycleMode"] == "Ephemeral",
            published: record[UNPUBLISHED] != "true",
        };
        match read.driver.is_empty() || read.handle.is_empty() {
            true => Err("not a volume record: driverName or volumeHandle is missing".to_owned()),
            false => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            driver: "d.x".into(),
            handle: "\"\u{1}".repeat(2_048),
            volume: "pv".into(),
            node: "n".into(),
            inline: false,
            published: false,
        }
    }

    #[test]
    fn written_record_is_read() {
        for (inline, published) in [(false, false), (false, true), (true, true)] {
            let record = Record { inline, published, ..record() };
            let written = record.written();
            assert!(u64::try_from(written.len()).is_ok_and(|length| length < MAX_FILE), "a handle of 4 KiB has room");
            assert_eq!(Record::read(&written), Ok(record));
        }
    }

    #[test]
    fn record_of_a_kubelet_is_read() {
        let staged = br#"{"driverName":"d.x","volumeHandle":"h"}"#;
        let read = Record::read(staged).expect("a record");
        assert!(read.is_of("d.x", "h") && read.published && !read.inline && read.volume.is_empty());
        assert!(!read.is_of("d.x", "g") && !read.is_of("d.y", "h"));
        let keys = record().written();
        let keys: Value = serde_json::from_slice(&keys).expect("JSON");
        assert!(keys["attachmentID"].as_str().is_some_and(|name| name.starts_with("csi-") && name.len() == 68));
        assert!(keys.as_object().is_some_and(|keys| keys.values().all(Value::is_string)), "a map of texts");
    }

    #[test]
    fn damaged_record_is_refused() {
        for wrong in
            [&b""[..], b"{", b"[]", b"null", b"{}", br#"{"driverName":"d"}"#, br#"{"volumeHandle":7}"#, b"\xff"]
        {
            assert!(Record::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
