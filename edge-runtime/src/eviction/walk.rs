//! How much disk a pod holds: walks its folders. Blocks and remembers every folder it has not seen yet, so it runs in
//! the helper process (the verb `usage`); [`ask`] is the daemon's side of that.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use super::limits::DiskUsage;
use crate::paths::Paths;
use crate::sys::program;

/// A pod to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub uid: String,
    /// Its log folder.
    pub logs: PathBuf,
}

/// By uid.
pub type Answers = BTreeMap<String, DiskUsage>;

/// Has a helper process walk the pods' folders.
///
/// # Errors
/// The helper cannot be run, or says nothing that can be read.
pub async fn ask(paths: &Paths, questions: &[Question]) -> io::Result<Answers> {
    let mut command = program::itself("usage");
    command.arg("--root").arg(paths.root());
    let output = crate::image::spawn::talk(command, &serde_json::to_vec(questions)?).await?;
    Ok(serde_json::from_slice(&output)?)
}

/// Everything one pod has written. Folders that are not there count nothing.
pub fn usage_of(paths: &Paths, question: &Question) -> DiskUsage {
    let pod = paths.pod(&question.uid);
    let mut usage = DiskUsage::default();
    let mut add = |map: fn(&mut DiskUsage) -> &mut BTreeMap<String, u64>, name: &str, folder: &Path| {
        let (bytes, inodes) = size(folder);
        *map(&mut usage).entry(name.to_owned()).or_default() += bytes;
        usage.inodes += inodes;
    };
    let device = std::fs::metadata(&pod).map(|meta| meta.dev()).ok();
    for (name, path) in children(&pod.join("volumes")) {
        // Another device is a tmpfs: memory, not disk.
        if std::fs::symlink_metadata(&path).is_ok_and(|meta| Some(meta.dev()) == device) {
            add(|usage| &mut usage.volumes, &name, &path);
        }
    }
    for (name, path) in children(&pod.join("containers")) {
        for (_, attempt) in children(&path) {
            add(|usage| &mut usage.layers, &name, &attempt.join("upper"));
            add(|usage| &mut usage.layers, &name, &attempt.join("termination-log"));
        }
    }
    for (name, path) in children(&question.logs) {
        add(|usage| &mut usage.logs, &name, &path);
    }
    let (bytes, inodes) = size(&paths.pod_files(&question.uid));
    usage.files = bytes;
    usage.inodes += inodes;
    usage
}

fn children(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

/// Longest path handed to the kernel at once, below its 4096.
const LONGEST: usize = 3000;

/// Bytes (as blocks, so that holes are free) and number of all files below `top`, on its file system only; a file
/// with two names counts once. What cannot be read is left out: it may be deleted while we look.
pub fn size(top: &Path) -> (u64, u64) {
    let Ok(meta) = std::fs::symlink_metadata(top) else { return (0, 0) };
    let (mut bytes, mut inodes, mut linked) = (meta.blocks() * 512, 1, HashSet::new());
    let mut todo: Vec<PathBuf> = meta.is_dir().then(PathBuf::new).into_iter().collect();
    while let Some(folder) = todo.pop() {
        let Ok(handle) = open_deep(top, &folder) else { continue };
        // Through the descriptor: the path may be longer than the kernel takes.
        let Ok(entries) = std::fs::read_dir(format!("/proc/self/fd/{}", handle.as_raw_fd())) else { continue };
        for entry in entries.flatten() {
            let Ok(found) = entry.metadata() else { continue };
            let counted = !found.is_dir() && found.nlink() > 1 && !linked.insert(found.ino());
            if counted || found.dev() != meta.dev() {
                continue;
            }
            bytes += found.blocks() * 512;
            inodes += 1;
            if found.is_dir() {
                todo.push(folder.join(entry.file_name()));
            }
        }
    }
    (bytes, inodes)
}

fn open_deep(top: &Path, below: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = open(top, flags, Mode::empty())?;
    let mut part = PathBuf::new();
    for name in below {
        if part.as_os_str().len() + name.len() > LONGEST {
            at = openat(&at, &part, flags, Mode::empty())?;
            part = PathBuf::new();
        }
        part.push(name);
    }
    if part.as_os_str().is_empty() { Ok(at) } else { openat(&at, &part, flags, Mode::empty()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_folders_are_counted_by_kind() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        let (pod, logs) = (paths.pod("u"), temp.path().join("logs"));
        for (file, kib) in [("volumes/v/a/b", 64), ("containers/c/0/upper/x", 8), ("containers/c/1/upper/x", 8)] {
            let file = pod.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, vec![1; kib << 10]).unwrap();
        }
        std::fs::create_dir_all(logs.join("c")).unwrap();
        std::fs::write(logs.join("c/0.log"), vec![1; 4 << 10]).unwrap();
        // What every pod can write without a volume or a layer.
        std::fs::write(pod.join("containers/c/1/termination-log"), vec![1; 32 << 10]).unwrap();
        std::fs::create_dir_all(paths.pod_files("u")).unwrap();
        std::fs::write(paths.pod_files("u").join("hosts"), vec![1; 128 << 10]).unwrap();
        std::fs::hard_link(pod.join("volumes/v/a/b"), pod.join("volumes/v/a/again")).unwrap();
        let used = usage_of(&paths, &Question { uid: "u".into(), logs });
        let near = |bytes: u64, kib: u64| bytes >= kib << 10 && bytes <= (kib + 16) << 10;
        assert!(near(used.volumes["v"], 64), "{used:?}");
        assert!(near(used.layers["c"], 48) && near(used.files, 128) && near(used.logs["c"], 4), "{used:?}");
        assert_eq!(used.inodes, 3 + 5 + 2 + 2);
        assert_eq!(usage_of(&paths, &Question { uid: "x".into(), logs: "/nowhere".into() }), DiskUsage::default());
    }

    #[test]
    fn a_deep_tree_hides_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let name = "n".repeat(200);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut at = open(temp.path(), flags, Mode::empty()).unwrap();
        for _ in 0..40 {
            nix::sys::stat::mkdirat(&at, name.as_str(), Mode::S_IRWXU).unwrap();
            at = openat(&at, name.as_str(), flags, Mode::empty()).unwrap();
        }
        std::fs::write(format!("/proc/self/fd/{}/file", at.as_raw_fd()), vec![1; 1 << 20]).unwrap();
        let (bytes, inodes) = size(temp.path());
        assert!(bytes >= 1 << 20 && inodes == 42, "{bytes} {inodes}");
        crate::sys::delete::delete_tree(temp.path()).unwrap();
    }
}
