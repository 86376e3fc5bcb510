//! The file of the state, rollbacks and locks, on a disk.

use super::*;

fn versions(root: &Path) -> Versions {
    Versions::new(root, &root.join("usr/lib/edge-runtime"))
}

#[test]
fn damaged_state_counts_as_missing() {
    let temp = tempfile::tempdir().unwrap();
    let versions = versions(temp.path());
    assert_eq!(versions.read(), State::default());
    versions.change(|_| ()).unwrap();
    assert!(!versions.file().exists(), "nothing is written for nothing");
    let trial = Trial { from: Some("1-a".into()), seconds: 300, ..Trial::default() };
    versions.change(|state| (state.current, state.trial) = (Some("2-b".into()), Some(trial))).unwrap();
    assert_eq!(versions.read().current.as_deref(), Some("2-b"));
    for damaged in ["", "{", "[]", "\0\0", r#"{"current":"../../bin"}"#, r#"{"current":"a/b"}"#, r#"{"current":7}"#] {
        fs::write(versions.file(), damaged).unwrap();
        assert_eq!(versions.read(), State::default(), "{damaged}");
    }
}

#[test]
fn the_configuration_comes_back_also_if_there_was_none() {
    let temp = tempfile::tempdir().unwrap();
    let versions = versions(temp.path());
    fs::create_dir_all(versions.folder()).unwrap();
    fs::create_dir_all(versions.configuration().parent().unwrap()).unwrap();
    fs::write(versions.configuration(), "new").unwrap();
    versions.restore_configuration().unwrap();
    assert_eq!(fs::read(versions.configuration()).unwrap(), b"new", "nothing is known of before");
    fs::write(versions.configuration_before(), "old").unwrap();
    versions.restore_configuration().unwrap();
    assert_eq!(fs::read(versions.configuration()).unwrap(), b"old");
    fs::write(versions.configuration_before(), "").unwrap();
    versions.restore_configuration().unwrap();
    versions.restore_configuration().unwrap();
    assert!(!versions.configuration().exists());
}

#[test]
fn trial_ends_only_after_the_rollback() {
    let temp = tempfile::tempdir().unwrap();
    let versions = versions(temp.path());
    let folder = versions.configuration().parent().unwrap().to_path_buf();
    let trial = Trial { subject: Subject::Configuration, ..Trial::default() };
    versions.change(|state| state.trial = Some(trial)).unwrap();
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    fs::write(versions.configuration_before(), "old").unwrap();
    // No folder can be where a file is: the configuration cannot be written.
    fs::write(&folder, "").unwrap();
    versions.go_back(|_| true, "x").unwrap_err();
    assert!(versions.read().trial.is_some());
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    // The state cannot be written.
    let blocked = versions.folder().join(".state.json");
    fs::create_dir(&blocked).unwrap();
    versions.go_back(|_| true, "x").unwrap_err();
    assert_eq!(fs::read(versions.configuration()).unwrap(), b"old", "the configuration came first");
    assert!(versions.read().trial.is_some());
    fs::remove_dir(&blocked).unwrap();
    assert!(!versions.go_back(|_| false, "x").unwrap(), "another one");
    assert!(versions.go_back(|_| true, "x").unwrap());
    assert!(!versions.go_back(|_| true, "x").unwrap(), "there is none");
    assert!(versions.read().last.is_some_and(|last| !last.good && last.reason == "x"));
}

#[test]
fn rollback_waits_for_a_change_of_the_configuration() {
    let temp = tempfile::tempdir().unwrap();
    let versions = versions(temp.path());
    let trial = Trial { subject: Subject::Configuration, ..Trial::default() };
    versions.change(|state| state.trial = Some(trial)).unwrap();
    fs::write(versions.configuration_before(), "old").unwrap();
    let lock = config_lock::take(&versions.configuration()).unwrap();
    std::thread::scope(|scope| {
        let back = scope.spawn(|| versions.go_back(|_| true, "x"));
        std::thread::sleep(Duration::from_millis(200));
        fs::write(versions.configuration(), "on trial, and changed").unwrap();
        drop(lock);
        assert!(back.join().unwrap().unwrap());
    });
    assert_eq!(fs::read(versions.configuration()).unwrap(), b"old");
}

#[test]
fn unused_versions_are_deleted() {
    let temp = tempfile::tempdir().unwrap();
    let versions = versions(temp.path());
    for name in ["1-a", "2-b", "3-c", "4-d", "5-e.partial"] {
        fs::create_dir_all(versions.folder().join(name)).unwrap();
    }
    let last = Ended { from: Some("2-b".into()), good: true, ..Ended::default() };
    let state = State { current: Some("3-c".into()), trial: None, last: Some(last) };
    let coming = versions.lock_arrival(true).unwrap();
    versions.prune(&state, &|_| false).unwrap();
    assert!(versions.folder().join("5-e.partial").exists(), "while it comes");
    drop(coming);
    versions.prune(&state, &|path| path.ends_with("4-d")).unwrap();
    fs::remove_file(versions.folder().join("arriving.lock")).unwrap();
    let mut left: Vec<_> = fs::read_dir(versions.folder()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["2-b", "3-c", "4-d"]);
}
