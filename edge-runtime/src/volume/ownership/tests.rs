//! Volumes that are larger than a look has time for.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::fcntl::openat;

use super::*;
use crate::sys::walk::DEEPEST;

const GROUP: u32 = 4242;

fn bounds() -> Bounds {
    Bounds { entries: MOST, until: Instant::now() + LONGEST }
}

#[test]
fn a_large_volume_is_given_over_within_bounds() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let mut at = open(&volume, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    // Longer than a path may be (PATH_MAX is 4096 bytes).
    let deeper = |at: &OwnedFd| {
        nix::sys::stat::mkdirat(at, "a-folder-of-its-own", Mode::S_IRWXU).unwrap();
        openat(at, "a-folder-of-its-own", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).unwrap()
    };
    for _ in 0..DEEPEST - 1 {
        at = deeper(&at);
    }
    for file in 0..600 {
        fs::write(format!("/proc/self/fd/{}/{file}", at.as_raw_fd()), "").unwrap();
    }
    assert!(matches!(apply(&volume, GROUP, false).unwrap(), Progress::TooMuch(_)));
    assert_eq!(own_at(&volume, GROUP, false, bounds()).unwrap(), Progress::Done);
    let bits = |found: &fs::Metadata| (found.gid(), found.mode() & 0o2770);
    let deepest = fs::metadata(format!("/proc/self/fd/{}", at.as_raw_fd())).unwrap();
    assert_eq!([bits(&deepest), bits(&fs::metadata(&volume).unwrap())], [(GROUP, 0o2770); 2]);
    assert_eq!(apply(&volume, GROUP, true).unwrap(), Progress::Done);
    // One folder more is refused with a message, and not marked as done.
    drop(deeper(&at));
    let owning = Owning { path: volume.clone(), group: GROUP + 1, mark: dir.path().join("marks/volume") };
    let why = owning.run().unwrap_err().to_string();
    assert!(why.contains("more than 500 folders deep") && !owning.mark.exists(), "{why}");
    crate::sys::delete::delete_tree(&volume).unwrap();
}
