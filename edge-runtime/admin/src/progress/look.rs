//! One look at a pull or import: its note and its download, which its process has open, and the layers on the disk.

use std::fs;
use std::path::{Path, PathBuf};

use edge_runtime::image::layers::Layers;
use edge_runtime::paths::Paths;
use serde::Deserialize;

use super::show::Seen;

/// Names in `incoming`, as `edge_runtime::image` gives them.
const NOTE: &str = "want-";
const DOWNLOAD: &str = "blob-";

/// The part of a note that is read here.
#[derive(Deserialize)]
struct Note {
    /// Diff ids.
    layers: Vec<String>,
    /// Bytes of each.
    #[serde(default)]
    sizes: Vec<u64>,
}

pub(crate) struct Looker {
    descriptors: PathBuf,
    incoming: PathBuf,
    layers: Layers,
}

impl Looker {
    /// Looks at a process of this node.
    pub(crate) fn of(pid: u32, paths: &Paths) -> Self {
        let incoming = paths.incoming();
        Self {
            descriptors: PathBuf::from(format!("/proc/{pid}/fd")),
            // As links of descriptors show it.
            incoming: incoming.canonicalize().unwrap_or(incoming),
            layers: Layers::new(paths),
        }
    }

    /// `None` while it fetches no layers, or if its process cannot be seen.
    pub(crate) fn look(&self) -> Option<Seen> {
        let open = fs::read_dir(&self.descriptors).ok()?.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        let open: Vec<PathBuf> = open.collect();
        let of = |prefix| open.iter().filter(move |path| is_entry(path, &self.incoming, prefix));
        // An archive may hold several images.
        let note = of(NOTE).max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok())?;
        let note: Note = serde_json::from_slice(&fs::read(note).ok()?).ok()?;
        let partial = of(DOWNLOAD).filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
        let sizes = note.sizes.into_iter().chain(std::iter::repeat(0));
        Some(Seen {
            layers: note.layers.iter().zip(sizes).map(|(layer, size)| (size, self.layers.has(layer))).collect(),
            partial,
        })
    }
}

fn is_entry(path: &Path, folder: &Path, prefix: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.parent() == Some(folder) && name.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn open_note_and_download_tell_how_far_it_is() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        fs::create_dir_all(paths.incoming()).unwrap();
        let looker = Looker::of(std::process::id(), &paths);
        assert!(looker.look().is_none());
        let (note, download) = (paths.incoming().join("want-ab"), paths.incoming().join("blob-cd"));
        fs::write(&note, r#"{"layers":["sha256:01","sha256:02"],"brought":[],"access":{},"sizes":[10,30]}"#).unwrap();
        fs::write(&download, "12345").unwrap();
        assert!(looker.look().is_none(), "of another process");
        let _held = (File::open(&note).unwrap(), File::open(&download).unwrap());
        let seen = looker.look().unwrap();
        assert_eq!((seen.layers.as_slice(), seen.partial), ([(10, false), (30, false)].as_slice(), 5));
    }
}
