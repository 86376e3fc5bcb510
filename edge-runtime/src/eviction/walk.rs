//! How much disk a pod holds: walks its folders. Blocks, and costs what the pod has made of its folders, so it runs in
//! the helper process (the verb `usage`); [`ask`] is the daemon's side of that.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{AtFlags, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use serde::{Deserialize, Serialize};

use super::limits::{DiskUsage, MOST_ENTRIES, Used};
use crate::paths::Paths;
use crate::sys::from_json::from_json;
use crate::sys::program;
use crate::sys::walk::{Bound, Bounds, FOLDER, Stopped, Walk};

/// Maximum time for one pod in a disk shortage: others wait to be measured.
pub const LONGEST_IN_SHORTAGE: Duration = Duration::from_secs(60);
/// The helper counts as stuck if this much passes after the time of one pod.
const SLACK: Duration = Duration::from_secs(60);
/// Bytes of one line of the helper: some thousand names of containers and volumes.
const LONGEST_LINE: usize = 1 << 20;

/// A pod to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub uid: String,
    /// Its log folder.
    pub logs: PathBuf,
    /// Includes volumes in memory and those made of objects.
    #[serde(default)]
    pub elsewhere: bool,
    /// Timeout for at most [`MOST_ENTRIES`] entries.
    pub patience: Duration,
}

/// By uid. A pod that could not be measured is missing.
pub type Answers = BTreeMap<String, DiskUsage>;

/// Has a helper process walk the pods' folders. If the helper dies at a pod, that pod is omitted and the others are
/// requested again. So the folders of one pod cannot prevent the others from being measured.
pub async fn ask(paths: &Paths, questions: &[Question]) -> Answers {
    ask_of(|| itself(paths), questions).await
}

fn itself(paths: &Paths) -> std::process::Command {
    let mut command = program::itself("usage");
    command.arg("--root").arg(paths.root());
    command
}

async fn ask_of(helper: impl Fn() -> std::process::Command, questions: &[Question]) -> Answers {
    let (mut answers, mut left) = (Answers::new(), questions);
    while let [first, ..] = left {
        let silence = first.patience + SLACK;
        let mut count = 0;
        let line = |line: &[u8]| {
            if let Some(question) = left.get(count)
                && let Ok(used) = from_json(line)
            {
                answers.insert(question.uid.clone(), used);
            }
            count += 1;
        };
        let input = serde_json::to_vec(left).unwrap_or_default();
        let ended = program::follow(helper(), &input, LONGEST_LINE, silence, line).await;
        left = left.get(count..).unwrap_or_default();
        if let [stuck, rest @ ..] = left {
            let why = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            log::error!("disk use of pod {} cannot be measured: {why}; the node measures the other pods", stuck.uid);
            left = rest;
        }
    }
    answers
}

/// What the helper does: a line for each question, as soon as it is answered.
///
/// # Errors
/// Those of `print`.
pub fn answer<E>(paths: &Paths, questions: &[Question], print: impl Fn(&DiskUsage) -> Result<(), E>) -> Result<(), E> {
    questions.iter().try_for_each(|question| print(&usage_of(paths, question)))
}

/// Everything one pod has written. Folders that are not there count nothing.
pub fn usage_of(paths: &Paths, question: &Question) -> DiskUsage {
    let pod = paths.pod(&question.uid);
    let mut usage = DiskUsage::default();
    let mut bounds = Bounds { entries: MOST_ENTRIES, until: Instant::now() + question.patience };
    let mut add = |map: fn(&mut DiskUsage) -> &mut BTreeMap<String, Used>, name: &str, folder: &Path| {
        let (used, stopped) = size(folder, &mut bounds);
        map(&mut usage).entry(name.to_owned()).or_default().add(used);
        usage.beyond = usage.beyond.or(stopped);
    };
    let device = std::fs::metadata(&pod).map(|meta| meta.dev()).ok();
    for (name, path) in children(&pod.join("volumes")) {
        // Another device is a tmpfs: memory, not disk.
        if std::fs::symlink_metadata(&path).is_ok_and(|meta| Some(meta.dev()) == device) {
            add(|usage| &mut usage.volumes, &name, &path);
        } else if question.elsewhere {
            add(|usage| &mut usage.elsewhere, &name, &path);
        }
    }
    for (name, path) in children(&pod.join("containers")) {
        for (_, attempt) in children(&path) {
            // `volumes`: those that the image declares.
            for part in ["upper", "volumes", "termination-log"] {
                add(|usage| &mut usage.layers, &name, &attempt.join(part));
            }
        }
    }
    for (name, path) in children(&question.logs) {
        add(|usage| &mut usage.logs, &name, &path);
    }
    if question.elsewhere {
        for (name, path) in children(&pod.join("objects")) {
            add(|usage| &mut usage.elsewhere, &name, &path);
        }
    }
    let (files, stopped) = size(&paths.pod_files(&question.uid), &mut bounds);
    usage.files = files;
    usage.beyond = usage.beyond.or(stopped);
    usage
}

fn children(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

/// Bytes (as blocks, so that holes are free) and number of all files below `top`, on its file system only; a file
/// with two names counts once. What cannot be read is left out: it may be deleted while we look. At a bound the count is a
/// lower one.
pub fn size(top: &Path, bounds: &mut Bounds) -> (Used, Option<Bound>) {
    let Ok(meta) = std::fs::symlink_metadata(top) else { return (Used::default(), None) };
    let mut used = Used { bytes: meta.blocks() * 512, inodes: 1 };
    let Ok(folder) = open(top, FOLDER, Mode::empty()) else { return (used, None) };
    // Not of the path again: it may be another folder by now.
    let Ok(device) = fstat(&folder).map(|found| found.st_dev) else { return (used, None) };
    let Ok(mut walk) = Walk::new(folder, bounds) else { return (used, None) };
    let mut linked = HashSet::new();
    loop {
        let name = match walk.next_entry() {
            Ok(Some(name)) => name,
            Ok(None) => return (used, None),
            Err(Stopped::Bound(bound)) => return (used, Some(bound)),
            Err(Stopped::Io(_)) => {
                walk.leave();
                continue;
            }
        };
        let Ok(found) = fstatat(walk.folder(), name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
        let counted = !is_folder(&found) && found.st_nlink > 1 && !linked.insert(found.st_ino);
        if counted || found.st_dev != device {
            continue;
        }
        used.add(Used { bytes: u64::try_from(found.st_blocks).unwrap_or_default() * 512, inodes: 1 });
        if is_folder(&found)
            && let Err(Stopped::Bound(bound)) = walk.enter(&name)
        {
            return (used, Some(bound));
        }
    }
}

fn is_folder(found: &FileStat) -> bool {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

#[cfg(test)]
mod tests;
