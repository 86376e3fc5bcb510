//! Volumes of CSI drivers that a pod has or is about to have: `csi-volumes.json` in its folder. The file is on the disk
//! before the helper is told of the first one, and goes when the last one is unmounted.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::paths::Paths;
use crate::sys::files::{named, private_dir, replace, unless_missing};
use crate::sys::from_json::from_json;

/// A volume as the file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptVolume {
    /// Name in the pod.
    pub name: String,
    /// Name of the PersistentVolume, see [`CsiVolume::folder`](super::csi::CsiVolume::folder).
    pub folder: String,
    /// Where it is mounted; empty until it is.
    pub path: String,
    /// Name in `volumesInUse` of the Node; empty for a volume that is not attached.
    pub in_use: String,
}

/// Returns the volumes of a pod; none without a file, or if it is damaged.
pub fn load(paths: &Paths, uid: &str) -> Vec<KeptVolume> {
    let Ok(text) = fs::read(paths.csi_volumes(uid)) else { return Vec::new() };
    parse(&text).unwrap_or_else(|| {
        log::error!("pod {uid}: its volumes of CSI drivers are forgotten, because their file is damaged");
        Vec::new()
    })
}

/// Returns where a volume of a pod is mounted. By its folder: a claim of that name may have been bound to another one before.
pub(super) fn path(paths: &Paths, uid: &str, folder: &str) -> Option<PathBuf> {
    let found = load(paths, uid).into_iter().find(|volume| volume.folder == folder && !volume.path.is_empty())?;
    Some(found.path.into())
}

/// Forgets where the volumes of a pod are mounted, but not which volumes it has: they are not mounted again.
///
/// # Errors
/// The disk is full.
pub fn lose_paths(paths: &Paths, uid: &str) -> io::Result<()> {
    let mut volumes = load(paths, uid);
    if volumes.iter().all(|volume| volume.path.is_empty()) {
        return Ok(());
    }
    volumes.iter_mut().for_each(|volume| volume.path.clear());
    save(paths, uid, &volumes)
}

/// Writes the volumes of a pod, durably; a pod without volumes has no file.
///
/// # Errors
/// The disk is full.
pub fn save(paths: &Paths, uid: &str, volumes: &[KeptVolume]) -> io::Result<()> {
    let path = paths.csi_volumes(uid);
    if volumes.is_empty() {
        return unless_missing(fs::remove_file(&path)).map(drop).map_err(named(&path));
    }
    private_dir(&paths.pod(uid))?;
    let rows = volumes.iter().map(|one| json!([one.name, one.folder, one.path, one.in_use])).collect();
    replace(&path, Value::Array(rows).to_string().as_bytes(), true).map_err(named(&path))
}

/// `None` for a file that is not whole.
fn parse(text: &[u8]) -> Option<Vec<KeptVolume>> {
    let rows: Value = from_json(text).ok()?;
    let one = |row: &Value| {
        let text = |at: usize| row[at].as_str().map(str::to_owned);
        Some(KeptVolume { name: text(0)?, folder: text(1)?, path: text(2)?, in_use: text(3)? })
    };
    rows.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn volume(folder: &str, path: &str) -> KeptVolume {
        KeptVolume {
            name: "data".to_owned(),
            folder: folder.to_owned(),
            path: path.to_owned(),
            in_use: "kubernetes.io/csi/d^h".to_owned(),
        }
    }

    #[test]
    fn file_is_there_as_long_as_there_are_volumes() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::new(folder.path());
        assert!(load(&paths, "u").is_empty());
        save(&paths, "u", &[]).unwrap();
        let volumes = [volume("a", "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/a/mount"), volume("b", "")];
        save(&paths, "u", &volumes).unwrap();
        assert_eq!(load(&paths, "u"), volumes);
        assert_eq!(path(&paths, "u", "a").as_deref(), Some(Path::new(&volumes[0].path)));
        assert_eq!((path(&paths, "u", "b"), path(&paths, "u", "c"), path(&paths, "x", "a")), (None, None, None));
        lose_paths(&paths, "u").unwrap();
        assert_eq!((load(&paths, "u"), path(&paths, "u", "a")), (vec![volume("a", ""), volume("b", "")], None));
        lose_paths(&paths, "x").unwrap();
        assert!(!paths.csi_volumes("x").exists());
        save(&paths, "u", &[]).unwrap();
        assert!(!paths.csi_volumes("u").exists());
    }

    #[test]
    fn damaged_file_counts_as_none() {
        for text in ["", "[", "{}", "[[]]", "[[\"a\",\"b\",\"c\",1]]", "[\"a\"]"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"[]"), Some(Vec::new()));
    }
}
