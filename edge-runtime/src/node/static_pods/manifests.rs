//! The folder of static pods' manifests: its files, and whether it can be trusted. Knows nothing of running pods.
//!
//! A folder that is unreadable, or that was replaced by an empty one, does not mean that its pods are unwanted: its
//! partition may not be mounted, or it is being rewritten.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A manifest is a page of text; more than this is not one.
const MANIFEST_LIMIT: u64 = 1 << 20;
/// More files than pods that any node takes.
const FILES_LIMIT: usize = 1024;

/// One look at the folder.
pub(super) struct Listing {
    /// Device and inode of the folder.
    pub(super) folder: (u64, u64),
    /// Content by file name; `None` for an unreadable file.
    pub(super) files: BTreeMap<String, Option<String>>,
}

/// What was found last time, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) folder: (u64, u64),
    /// Uids of pods by the file they are from.
    pub(super) pods: BTreeMap<String, String>,
}

/// Reads the folder.
///
/// # Errors
/// It cannot be listed, as a whole or in part, or went away or was hidden meanwhile: then files that are missing say nothing.
pub(super) fn list(folder: &Path) -> io::Result<Listing> {
    list_by(folder, &read)
}

fn list_by(folder: &Path, read: &dyn Fn(&Path) -> io::Result<Option<String>>) -> io::Result<Listing> {
    let identity = || fs::metadata(folder).map(|meta| (meta.dev(), meta.ino()));
    let before = identity()?;
    let mut files = BTreeMap::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        // The kubelet skips hidden files too: editors leave them.
        if name.starts_with('.') {
            continue;
        }
        if files.len() == FILES_LIMIT {
            return Err(io::Error::other(format!("more than {FILES_LIMIT} files")));
        }
        match read(&file.path()) {
            Ok(Some(text)) => drop(files.insert(name, Some(text))),
            // Gone since it was listed, unless it is a link to what is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !file.path().is_symlink() => {}
            Ok(None) => {}
            Err(error) => {
                log::debug!("{}: {error}", file.path().display());
                files.insert(name, None);
            }
        }
    }
    if identity()? != before {
        return Err(io::Error::other("it was replaced while it was read"));
    }
    Ok(Listing { folder: before, files })
}

/// `None` if it is not a regular file.
fn read(path: &Path) -> io::Result<Option<String>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MANIFEST_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MANIFEST_LIMIT {
        // What is left of one that is cut off may be another pod.
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

impl Listing {
    /// Whether nothing in it says that nothing is wanted.
    pub(super) fn says_nothing(&self, before: &Found) -> bool {
        self.files.is_empty() && !before.pods.is_empty() && before.folder != self.folder
    }
}

/// Whether the pod `uid` runs on: its file is there and cannot be told to be another's.
pub(super) fn keeps(before: &Found, unclear: &[String], uid: &str) -> bool {
    match before.pods.iter().find(|(_, of)| *of == uid) {
        Some((file, _)) => unclear.contains(file),
        // Which file it comes from is unknown.
        None => !unclear.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_not_what_is_not_there() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("manifests");
        assert!(list(&folder).is_err(), "a missing folder is no empty one");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.yaml"), "a").unwrap();
        fs::write(folder.join(".a.yaml.swp"), "a").unwrap();
        fs::create_dir(folder.join("more")).unwrap();
        std::os::unix::fs::symlink(temp.path().join("not-mounted/b.yaml"), folder.join("b.yaml")).unwrap();
        let listing = list(&folder).unwrap();
        let expected = [("a.yaml".to_owned(), Some("a".to_owned())), ("b.yaml".to_owned(), None)];
        assert_eq!(listing.files, BTreeMap::from(expected));
    }

    #[test]
    fn manifest_beyond_the_limit_is_refused_whole() {
        let temp = tempfile::tempdir().unwrap();
        let manifest = |length: u64| "#".repeat(usize::try_from(length).unwrap());
        for (name, length) in [("longest.yaml", MANIFEST_LIMIT), ("longer.yaml", MANIFEST_LIMIT + 1)] {
            fs::write(temp.path().join(name), manifest(length)).unwrap();
        }
        let files = list(temp.path()).unwrap().files;
        assert_eq!(files["longest.yaml"], Some(manifest(MANIFEST_LIMIT)));
        assert_eq!(files["longer.yaml"], None);
    }

    #[test]
    fn a_folder_that_goes_while_it_is_read_says_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, away) = (temp.path().join("manifests"), temp.path().join("away"));
        for replaced in [false, true] {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("a.yaml"), "a").unwrap();
            let gone = list_by(&folder, &|file| {
                fs::rename(&folder, &away)?;
                if replaced {
                    fs::create_dir(&folder)?;
                }
                read(file)
            });
            assert!(gone.is_err(), "replaced: {replaced}");
            fs::remove_dir_all(&away).unwrap();
        }
    }

    #[test]
    fn an_empty_folder_counts_if_it_is_the_same() {
        let pods = BTreeMap::from([("a.yaml".to_owned(), "uid".to_owned())]);
        let before = Found { folder: (1, 2), pods };
        let empty = |folder| Listing { folder, files: BTreeMap::new() };
        assert!(!empty((1, 2)).says_nothing(&before), "its last file was deleted");
        assert!(empty((1, 3)).says_nothing(&before), "it was replaced, or hidden by a mount");
        assert!(!empty((1, 3)).says_nothing(&Found::default()));
    }

    #[test]
    fn an_unclear_file_keeps_its_own_pod() {
        let pods = BTreeMap::from([("a.yaml".to_owned(), "one".to_owned()), ("b.yaml".to_owned(), "two".to_owned())]);
        let before = Found { folder: (1, 2), pods };
        let unclear = ["a.yaml".to_owned()];
        assert!(keeps(&before, &unclear, "one") && !keeps(&before, &unclear, "two"));
        assert!(keeps(&before, &unclear, "of a file that is not known") && !keeps(&before, &[], "one"));
    }
}
