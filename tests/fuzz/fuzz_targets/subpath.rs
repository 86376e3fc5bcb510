//! A volume that a pod has filled with folders and links, and a subPath into it: the result must be inside the volume.
//! Each line of the input creates one entry (`d PATH`, `f PATH`, `l PATH TARGET`); the last line is the subPath.
#![no_main]

use std::os::fd::AsRawFd;
use std::path::{Component, Path};

use edge_runtime::volume::subpath;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((script, sub_path)) = text.rsplit_once('\n') else { return };
    if sub_path.len() > 512 || sub_path.contains('\0') || subpath::check(sub_path).is_err() {
        return;
    }
    let folder = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let Ok(temp) = tempfile::Builder::new().prefix("sampan-fuzz-").tempdir_in(folder) else { return };
    let (volume, outside) = (temp.path().join("volume"), temp.path().join("outside"));
    std::fs::create_dir(&volume).expect("a folder");
    std::fs::create_dir(&outside).expect("a folder");
    for line in script.lines().take(32) {
        let mut words = line.splitn(3, ' ');
        let (kind, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // The set-up itself must stay inside.
        let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let at = volume.join(path);
        let plain = at.parent().is_some_and(|parent| parent.canonicalize().is_ok_and(|real| real.starts_with(&volume)));
        if path.is_empty() || path.len() > 200 || !inside || !plain {
            continue;
        }
        let _ = match kind {
            "d" => std::fs::create_dir(at),
            "f" => std::fs::File::create_new(at).map(drop),
            "l" => std::os::unix::fs::symlink(words.next().unwrap_or("."), at),
            _ => Ok(()),
        };
    }
    if let Ok(found) = subpath::open(&volume, sub_path) {
        let real = std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).expect("an open file has a path");
        assert!(real.starts_with(&volume), "{sub_path:?} led to {}", real.display());
    }
    assert_eq!(std::fs::read_dir(&outside).expect("it is still there").count(), 0, "{sub_path:?} made something outside");
});
