//! How much the volumes of a pod hold, for eviction. Reads folders a piece at a time, so that the one thread of the
//! daemon stays free; mounts other than a volume's own are not entered.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;

use super::layout::PodLayout;
use crate::paths::Paths;
use crate::pod::quantity;

/// Entries looked at before others get their turn.
const PIECE: usize = 256;

/// One emptyDir.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks that its files occupy.
    pub bytes: u64,
    pub inodes: u64,
    /// `sizeLimit`, if it has one.
    pub limit: Option<u64>,
    /// In memory: counts as the pod's memory, not as its storage.
    pub memory: bool,
}

/// Usage of the pod's emptyDirs by the volume's name. One that is not made yet, or goes meanwhile, counts as empty.
pub async fn usage(paths: &Paths, pod: &Pod) -> BTreeMap<String, Usage> {
    let layout = PodLayout::new(paths, pod.metadata.uid.as_deref().unwrap_or_default());
    let mut all = BTreeMap::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let Some(source) = &volume.empty_dir else { continue };
        let limit = source.size_limit.as_ref().and_then(|limit| quantity::value(&limit.0));
        let mut usage = Usage {
            limit: limit.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0),
            memory: source.medium.as_deref() == Some("Memory"),
            ..Usage::default()
        };
        count(layout.volume(&volume.name), &mut usage).await;
        all.insert(volume.name.clone(), usage);
    }
    all
}

async fn count(root: PathBuf, usage: &mut Usage) {
    let Ok(top) = fs::symlink_metadata(&root) else { return };
    let mut folders = vec![root];
    let mut seen = 0;
    let mut linked = std::collections::BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen % PIECE == 0 {
                smol::future::yield_now().await;
            }
            let Ok(found) = entry.metadata() else { continue };
            let again = found.nlink() > 1 && !found.is_dir() && !linked.insert(found.ino());
            if found.dev() != top.dev() || again {
                continue;
            }
            usage.inodes += 1;
            usage.bytes += found.blocks() * 512;
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
}
