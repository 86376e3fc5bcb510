//! Bytes and files below folders: counted in small steps that let others run, bounded, and remembered for a while.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use smol::future::yield_now;

use super::plan::Plan;

/// A count is good for this long.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// Files looked at before others get their turn.
const STEP: u32 = 32;
/// Files of one folder beyond which counting stops: the answer is then a lower bound.
const MOST: u32 = 20_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

pub(super) type Cache = BTreeMap<PathBuf, (Instant, Usage)>;

/// All folders of the plan.
pub(super) async fn measure(plan: &Plan, cache: &RefCell<Cache>) -> BTreeMap<PathBuf, Usage> {
    cache.borrow_mut().retain(|_, (at, _)| at.elapsed() < GOOD_FOR);
    let mut all = BTreeMap::new();
    for folder in plan.folders() {
        let known = cache.borrow().get(folder).map(|(_, usage)| *usage);
        let usage = match known {
            Some(usage) => usage,
            None => {
                let usage = count(folder).await;
                cache.borrow_mut().insert(folder.to_owned(), (Instant::now(), usage));
                usage
            }
        };
        all.insert(folder.to_owned(), usage);
    }
    all
}

/// As `du -x`: blocks, not lengths; other file systems below are left out.
async fn count(folder: &Path) -> Usage {
    let Ok(top) = fs::symlink_metadata(folder) else { return Usage::default() };
    let mut usage = Usage { bytes: top.blocks() * 512, inodes: 1 };
    let (mut folders, mut seen) = (vec![folder.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MOST {
                return usage;
            }
            if seen % STEP == 0 {
                yield_now().await;
            }
            let Ok(data) = entry.metadata() else { continue };
            if data.dev() != top.dev() {
                continue;
            }
            usage.bytes += data.blocks() * 512;
            usage.inodes += 1;
            if data.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_depths_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("root")).unwrap();
        let usage = smol::block_on(count(dir.path()));
        assert!((100_000..200_000).contains(&usage.bytes), "{usage:?}");
        assert_eq!(usage.inodes, 5);
        assert_eq!(smol::block_on(count(Path::new("/nowhere"))), Usage::default());
    }
}
