//! Changing owners of files, also while a pod changes the files.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::open;
use nix::unistd::{Uid, setfsuid};

use super::*;
use crate::walk::FOLDER;

const GROUP: u32 = 4242;

fn own_all(root: &Path) -> Result<Progress, Failed> {
    let top = open(root, FOLDER, Mode::empty()).unwrap();
    own(&top, root, GROUP, false, Bounds { entries: MOST, until: Instant::now() + LONGEST })
}

/// A pod that has the volume as well swaps a file, and a folder, for links to what is the host's.
#[test]
fn a_file_swapped_for_a_link_leads_nowhere() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (volume, host) = (dir.path().join("volume"), dir.path().join("host"));
    fs::create_dir_all(host.join("folder")).unwrap();
    for file in ["shadow", "folder/key"] {
        fs::write(host.join(file), "").unwrap();
        fs::set_permissions(host.join(file), fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::create_dir_all(volume.join("f")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (at, link, aside) = (volume.join("f/x"), volume.join("f/y"), volume.join("f/z"));
            while !stop.load(Ordering::Relaxed) {
                // Errors: the other half of the swap is under way.
                let _ = fs::write(&at, "");
                let _ = symlink(host.join("shadow"), &link);
                let _ = fs::rename(&link, &at);
                let _ = fs::remove_file(&at);
                let _ = fs::create_dir(&at);
                let _ = fs::write(at.join("key"), "");
                let _ = fs::rename(&at, &aside);
                let _ = symlink(host.join("folder"), &at);
                let _ = fs::remove_file(&at);
                let _ = fs::remove_dir_all(&aside);
            }
        });
        for _ in 0..3000 {
            // What vanishes under its hands may be an error, but nothing else may happen.
            let _ = own_all(&volume);
        }
        stop.store(true, Ordering::Relaxed);
    });
    for file in ["shadow", "folder", "folder/key"] {
        let found = fs::metadata(host.join(file)).unwrap();
        assert_ne!(found.gid(), GROUP, "{file}");
        assert_eq!(found.mode() & 0o060, if found.is_dir() { 0o040 } else { 0 }, "{file}");
    }
}

#[test]
fn an_entry_is_changed_where_it_was_opened() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, moved, host) = (dir.path().join("f"), dir.path().join("moved"), dir.path().join("host"));
    for path in [&file, &host] {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let handle = open(&file, OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty()).unwrap();
    fs::rename(&file, &moved).unwrap();
    symlink(&host, &file).unwrap();
    change(&handle, GROUP).unwrap();
    assert_eq!(fs::metadata(&host).unwrap().mode() & 0o7777, 0o600);
    let found = fs::metadata(&moved).unwrap();
    assert_eq!((found.gid(), found.mode() & 0o7777), (GROUP, 0o660));
}

/// Here a user for the file system who is not root stands for root behind an NFS server with `root_squash`.
#[test]
fn file_system_that_refuses_stays_as_it_is() {
    assert!([Errno::EIO, Errno::ESTALE, Errno::ENOSPC].iter().all(|errno| !is_refused(Some(*errno as i32))));
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("volume");
    fs::create_dir_all(volume.join("closed/folder")).unwrap();
    fs::write(volume.join("file"), "").unwrap();
    for (name, mode) in [("", 0o755), ("closed", 0o700), ("file", 0o600)] {
        fs::set_permissions(volume.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let refused = || {
        let top = open(&volume, FOLDER, Mode::empty()).unwrap();
        setfsuid(Uid::from_raw(65_534));
        own(&top, &volume, GROUP, false, Bounds { entries: MOST, until: Instant::now() + LONGEST })
    };
    let done = std::thread::scope(|scope| scope.spawn(refused).join().unwrap());
    assert_eq!(done.unwrap(), Progress::Done);
    let all = ["", "file", "closed", "closed/folder"];
    let is_given = |name: &&str| fs::metadata(volume.join(name)).unwrap().gid() == GROUP;
    assert!(!all.iter().any(is_given));
    assert_eq!(own_all(&volume).unwrap(), Progress::Done);
    assert!(all.iter().all(is_given));
}
