//! Content of `state.json`, by which the launcher selects the programs of a node after any power cut.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sampan_launcher::versions::Versions;

fuzz_target!(|data: &[u8]| {
    let folder = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let Ok(temp) = tempfile::Builder::new().prefix("sampan-fuzz-").tempdir_in(folder) else { return };
    let versions = Versions::new(temp.path(), Path::new("/usr/lib/edge-runtime"));
    std::fs::create_dir_all(versions.folder()).expect("a folder");
    std::fs::write(versions.folder().join("state.json"), data).expect("a file");
    let state = versions.read();
    let from = state.trial.as_ref().and_then(|trial| trial.from.as_deref());
    for name in state.current.as_deref().into_iter().chain(from) {
        let programs = versions.programs(Some(name));
        assert_eq!(programs.parent(), Some(versions.folder().as_path()), "a version is one of the node's own folders");
    }
    let mut ended = state.clone();
    ended.end(data.len() % 2 == 0, "fuzz");
    assert!(ended.trial.is_none());
    let (_, written) = (versions.change(|state| state.clone_from(&ended)).expect("written"), versions.read());
    assert_eq!(written, ended, "a state reads the same when it is read again");
});
