//! What pods have of CSI drivers: in memory, and in a file of each pod.

use std::fs;
use std::io;

use crate::paths::Paths;
use crate::sys::sort::sort;
use crate::sys::vec_map::VecMap;
use crate::volume::csi::CsiVolume;
use crate::volume::csi_kept::{self, KeptVolume};

/// Volumes by the pods' uids; no pod without one.
#[derive(Default)]
pub(in crate::node) struct AllKept(VecMap<String, Vec<KeptVolume>>);

impl AllKept {
    /// Reads the files of all pods.
    pub(super) fn load(paths: &Paths) -> Self {
        let mut all = Self::default();
        for folder in fs::read_dir(paths.pods()).into_iter().flatten().flatten() {
            let Ok(uid) = folder.file_name().into_string() else { continue };
            let kept = csi_kept::load(paths, &uid);
            if !kept.is_empty() {
                all.0.insert(uid, kept);
            }
        }
        all
    }

    pub(in crate::node) fn has(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }

    pub(super) fn uids(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Folders of a pod's volumes, each once.
    pub(super) fn folders(&self, uid: &str) -> Vec<String> {
        let mut folders: Vec<String> = Vec::new();
        for volume in self.0.get(uid).into_iter().flatten() {
            if !folders.contains(&volume.folder) {
                folders.push(volume.folder.clone());
            }
        }
        folders
    }

    /// `status.volumesInUse` of the Node: a volume is not detached while it is there.
    pub(in crate::node) fn in_use(&self) -> Vec<String> {
        let mut all = Vec::new();
        for volume in self.0.values().flatten().filter(|volume| !volume.in_use.is_empty()) {
            all.push(volume.in_use.clone());
        }
        sort(&mut all);
        all.dedup();
        all
    }

    /// The pod is about to have these volumes. They are in its file when this returns.
    ///
    /// # Errors
    /// The file cannot be written: the pod must not get them.
    pub(in crate::node) fn note(&mut self, paths: &Paths, uid: &str, volumes: &[CsiVolume]) -> io::Result<()> {
        let mut kept = self.0.get(uid).cloned().unwrap_or_default();
        for volume in volumes {
            let in_use = volume.in_use().unwrap_or_default();
            match kept.iter_mut().find(|one| one.name == volume.name && one.folder == volume.folder) {
                Some(known) => known.in_use = in_use,
                None => {
                    let (name, folder) = (volume.name.clone(), volume.folder.clone());
                    kept.push(KeptVolume { name, folder, path: String::new(), in_use });
                }
            }
        }
        if self.0.get(uid) != Some(&kept) {
            csi_kept::save(paths, uid, &kept)?;
            self.0.insert(uid.to_owned(), kept);
        }
        Ok(())
    }

    pub(super) fn mounted(&mut self, uid: &str, folder: &str, path: &str) {
        for volume in self.0.get_mut(uid).into_iter().flatten().filter(|volume| volume.folder == folder) {
            path.clone_into(&mut volume.path);
        }
    }

    pub(super) fn unmounted(&mut self, uid: &str, folder: &str) {
        if let Some(kept) = self.0.get_mut(uid) {
            kept.retain(|volume| volume.folder != folder);
        }
    }

    /// Writes the file of a pod if it has changed.
    pub(super) fn save(&mut self, paths: &Paths, uid: &str) -> io::Result<()> {
        let kept = self.0.get(uid).cloned().unwrap_or_default();
        if kept.is_empty() {
            self.0.remove(uid);
        }
        if csi_kept::load(paths, uid) == kept {
            return Ok(());
        }
        csi_kept::save(paths, uid, &kept)
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}
