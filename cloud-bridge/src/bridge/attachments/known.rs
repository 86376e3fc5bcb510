//! Known VolumeAttachments: of each only what a node needs, and all within a bounded room. Pure.

use std::collections::{BTreeSet, HashMap};

use ring::digest::{Context, SHA256};

use super::slim::SlimAttachment;

/// Room for all attachments, in bytes.
const ROOM: usize = 32 << 20;
/// Maximum length of the status of one, in bytes (K8s pkg/apis/storage/validation, `maxAttachedVolumeMetadataSize`).
const LONGEST: usize = 256 << 10;
/// Bytes that an attachment takes in addition to its texts.
const ENTRY: usize = 128;

/// The hash in the name of an attachment.
pub(super) type Hash = [u8; 32];

#[derive(Debug, Default)]
pub(super) struct Known {
    all: HashMap<Hash, Entry>,
    /// Bytes of all.
    used: usize,
}

#[derive(Debug, PartialEq)]
struct Entry {
    /// Name of the PersistentVolume.
    volume: Box<str>,
    attached: bool,
    /// JSON text.
    status: Box<str>,
}

impl Entry {
    fn size(&self) -> usize {
        ENTRY + self.volume.len() + self.status.len()
    }
}

impl Known {
    /// An attachment as it is now. Returns its volume if that changes what a node should hold.
    pub(super) fn take(&mut self, attachment: &SlimAttachment) -> Option<Box<str>> {
        let hash = hash_in(attachment.name())?;
        let status = attachment.status().filter(|status| {
            let fits = status.len() <= LONGEST;
            if !fits {
                log::warn!("VolumeAttachment {} is not sent: its attachmentMetadata is too long", attachment.name());
            }
            fits
        });
        let volume: Box<str> = attachment.volume().into();
        let Some(status) = status.filter(|_| !volume.is_empty()) else { return self.forget(&hash) };
        let entry = Entry { volume, attached: attachment.is_attached(), status: status.into() };
        if self.all.get(&hash) == Some(&entry) {
            return None;
        }
        let before = self.forget(&hash);
        if self.used + entry.size() > ROOM {
            log::warn!("VolumeAttachment {} is not sent: there are too many", attachment.name());
            return before;
        }
        self.used += entry.size();
        let volume = entry.volume.clone();
        self.all.insert(hash, entry);
        Some(volume)
    }

    /// An attachment was deleted.
    pub(super) fn remove(&mut self, attachment: &SlimAttachment) -> Option<Box<str>> {
        self.forget(&hash_in(attachment.name())?)
    }

    /// Replaces all by those of a complete list. Returns the volumes with changes.
    pub(super) fn replace(&mut self, list: Self) -> BTreeSet<Box<str>> {
        let old = std::mem::replace(self, list);
        let gone = old.all.iter().filter(|(hash, entry)| self.all.get(*hash) != Some(*entry));
        let new = self.all.iter().filter(|(hash, entry)| old.all.get(*hash) != Some(*entry));
        gone.chain(new).map(|(_, entry)| entry.volume.clone()).collect()
    }

    /// The status of an attachment. `listed`: whether the Node lists the volume; otherwise an attached one counts as none.
    pub(super) fn status(&self, hash: &Hash, listed: bool) -> Option<&str> {
        self.all.get(hash).filter(|entry| listed || !entry.attached).map(|entry| &*entry.status)
    }

    /// The PersistentVolume of an attachment.
    pub(super) fn volume(&self, hash: &Hash) -> Option<&str> {
        self.all.get(hash).map(|entry| &*entry.volume)
    }

    fn forget(&mut self, hash: &Hash) -> Option<Box<str>> {
        let entry = self.all.remove(hash)?;
        self.used -= entry.size();
        Some(entry.volume)
    }
}

/// The hash in the name of the attachment of a volume to a node (K8s pkg/volume/csi/csi_attacher.go,
/// `getAttachmentName`).
pub(super) fn hash_of(node: &str, driver: &str, handle: &str) -> Hash {
    let mut context = Context::new(&SHA256);
    [handle, driver, node].into_iter().for_each(|part| context.update(part.as_bytes()));
    // SHA-256 has this length.
    context.finish().as_ref().try_into().unwrap_or_default()
}

/// Reads the hash in a name; `None` for an attachment that other software has named.
fn hash_in(name: &str) -> Option<Hash> {
    let digits = name.strip_prefix("csi-")?.as_bytes();
    let mut hash = Hash::default();
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pki::encoding::hex;

    fn attachment(node: &str, volume: &str, status: Value) -> SlimAttachment {
        let name = format!("csi-{}", hex(&hash_of(node, "d", &format!("handle-of-{volume}"))));
        let object = json!({"metadata": {"name": name}, "status": status,
            "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": volume}}});
        serde_json::from_value(object).unwrap()
    }

    fn attached(node: &str, volume: &str) -> SlimAttachment {
        attachment(node, volume, json!({"attached": true}))
    }

    #[test]
    fn attachment_has_the_name_that_kubernetes_gives_it() {
        let name = "csi-2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
        assert_eq!(hash_in(name), Some(hash_of("o", "o", "f")), "SHA-256 of foo");
        let long = format!("csi-{}", "a".repeat(66));
        for other in ["", "csi-", "csi-12", "x", &long, &"é".repeat(34), &format!("csi-{}", "x".repeat(64))] {
            assert_eq!(hash_in(other), None, "{other}");
        }
    }

    #[test]
    fn node_gets_its_own_attachment() {
        let mut known = Known::default();
        assert_eq!(known.take(&attachment("a", "pv", json!({}))), None, "not attached");
        assert_eq!(known.take(&attached("a", "pv")).as_deref(), Some("pv"));
        assert_eq!(known.take(&attached("a", "pv")), None, "no news");
        let hash = |node: &str| hash_of(node, "d", "handle-of-pv");
        assert!(known.status(&hash("a"), true).is_some_and(|status| status.contains("true")));
        assert_eq!(known.status(&hash("a"), false), None, "the Node does not list it");
        assert_eq!((known.status(&hash("b"), true), known.volume(&hash("a"))), (None, Some("pv")));
        let failed = attachment("b", "pv", json!({"attached": false, "attachError": {"message": "no room"}}));
        assert_eq!(known.take(&failed).as_deref(), Some("pv"));
        assert!(known.status(&hash("b"), false).is_some_and(|status| status.contains("no room")));
        known.remove(&failed);
        assert_eq!(known.take(&attachment("a", "pv", json!({}))).as_deref(), Some("pv"), "detached");
        known.take(&attached("a", "pv"));
        assert_eq!(known.remove(&attached("a", "pv")).as_deref(), Some("pv"));
        assert_eq!((known.all.len(), known.used), (0, 0));
    }

    #[test]
    fn list_tells_what_has_changed() {
        let of = |all: &[SlimAttachment]| {
            let mut known = Known::default();
            all.iter().for_each(|one| drop(known.take(one)));
            known
        };
        let mut known = of(&[attached("a", "same"), attached("a", "gone"), attached("a", "changed")]);
        let changed = attachment("a", "changed", json!({"attached": true, "attachmentMetadata": {"x": "y"}}));
        let told = known.replace(of(&[attached("a", "same"), changed, attached("b", "new")]));
        assert_eq!(told.iter().map(|volume| &**volume).collect::<Vec<_>>(), ["changed", "gone", "new"]);
        assert_eq!(known.all.len(), 3);
    }

    #[test]
    fn memory_of_attachments_is_bounded() {
        let mut known = Known::default();
        let large = |at: usize, length: usize| {
            let metadata = json!({"attached": true, "attachmentMetadata": {"x": "y".repeat(length)}});
            attachment("a", &at.to_string(), metadata)
        };
        assert_eq!(known.take(&large(0, LONGEST)), None);
        (0..200).for_each(|at| drop(known.take(&large(at, LONGEST - 100))));
        assert!(known.used <= ROOM && (100..150).contains(&known.all.len()), "{}", known.all.len());
    }
}
