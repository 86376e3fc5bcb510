//! Which version a start runs, and when it ends a trial.

use super::*;
use crate::config_lock;
use crate::versions::Trial;

#[test]
fn run_that_only_prints_is_not_a_start() {
    let starts = |words: &str| starts_daemon(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>());
    assert!(starts("run") && starts("run --root /r --node n"));
    for words in ["run --print-config", "run --root /r --print-config", "run --help", "run -h", "status", ""] {
        assert!(!starts(words), "{words}");
    }
}

#[test]
fn version_that_cannot_start_is_rolled_back() {
    let trial = Trial { from: Some("1-a".into()), ..Trial::default() };
    let mut state = State { current: Some("2-b".into()), trial: Some(trial), last: None };
    give_up(&mut state, "Exec format error");
    assert_eq!(state.current.as_deref(), Some("1-a"));
    assert!(state.last.as_ref().is_some_and(|last| !last.good && last.reason.contains("Exec format")));
    give_up(&mut state, "gone, too");
    assert_eq!(state.current, None);
}

#[test]
fn version_that_ends_at_once_makes_room_for_the_packages() {
    let temp = tempfile::tempdir().unwrap();
    let versions = Versions::new(temp.path(), &temp.path().join("usr/lib/edge-runtime"));
    let state = State { current: Some("2-b".into()), ..State::default() };
    for _ in 0..ROW {
        assert_eq!(ends_at_once(&versions, &state), None);
    }
    assert!(ends_at_once(&versions, &state).unwrap().contains("10 times"));
    assert_eq!(ends_at_once(&versions, &State::default()), None, "there is nothing beside the package's");
    let trial = State { trial: Some(Trial::default()), ..state };
    assert_eq!(ends_at_once(&versions, &trial), None, "a trial has a watcher");
}

fn on_trial(root: &Path, subject: Subject) -> Versions {
    let versions = Versions::new(root, &root.join("usr/lib/edge-runtime"));
    let trial = Trial { subject, from: Some("1-a".into()), boot_id: boot_id(), ..Trial::default() };
    versions.change(|state| (state.current, state.trial) = (Some("2-b".into()), Some(trial))).unwrap();
    fs::create_dir_all(versions.configuration().parent().unwrap()).unwrap();
    fs::write(versions.configuration(), "new").unwrap();
    fs::write(versions.configuration_before(), "old").unwrap();
    versions
}

#[test]
fn trial_without_watcher_or_state_is_ended() {
    let nobody = Path::new("/nonexistent");
    for subject in [Subject::Programs, Subject::Configuration] {
        let temp = tempfile::tempdir().unwrap();
        let versions = on_trial(temp.path(), subject);
        let state = settle(&versions, nobody, &|_| ());
        let mut stored = versions.read();
        // The clock is read for each.
        stored.last.iter_mut().zip(&state.last).for_each(|(stored, last)| stored.at = last.at);
        assert_eq!(state, stored);
        assert!(state.last.is_some_and(|last| !last.good && last.reason.contains("nobody watches")));
        let is_old = fs::read(versions.configuration()).unwrap() == b"old";
        assert_eq!(is_old, subject == Subject::Configuration);
        assert_eq!(state.current.as_deref() == Some("1-a"), subject == Subject::Programs);
    }
    let temp = tempfile::tempdir().unwrap();
    let versions = on_trial(temp.path(), Subject::Programs);
    // Nothing can be written in place of a folder, as on a disk that is full.
    fs::create_dir(versions.folder().join(".state.json")).unwrap();
    let said = std::cell::RefCell::new(String::new());
    let state = settle(&versions, nobody, &|what| said.borrow_mut().push_str(what));
    assert_eq!((state.current.as_deref(), state.trial), (Some("1-a"), None));
    assert!(said.borrow().contains(CANNOT_BE_REMEMBERED), "{said:?}");
    assert!(versions.read().trial.is_some(), "the next start ends it again");
}

#[test]
fn start_after_a_boot_waits_for_a_change_of_the_configuration() {
    let temp = tempfile::tempdir().unwrap();
    let versions = on_trial(temp.path(), Subject::Configuration);
    versions.change(|state| state.trial.as_mut().unwrap().boot_id = "before".into()).unwrap();
    let lock = config_lock::take(&versions.configuration()).unwrap();
    std::thread::scope(|scope| {
        let start = scope.spawn(|| settle(&versions, Path::new("/nonexistent"), &|_| ()));
        std::thread::sleep(std::time::Duration::from_millis(200));
        fs::write(versions.configuration(), "new, and changed").unwrap();
        drop(lock);
        assert_eq!(start.join().unwrap().trial, None);
    });
    assert_eq!(fs::read(versions.configuration()).unwrap(), b"old");
}

#[test]
fn packaged_version_ends_a_configuration_trial() {
    let temp = tempfile::tempdir().unwrap();
    let versions = on_trial(temp.path(), Subject::Configuration);
    use_packaged(&versions).unwrap();
    let state = versions.read();
    assert_eq!((state.current, state.trial), (None, None));
    assert!(state.last.is_some_and(|last| !last.good && last.reason.contains("package")));
    assert_eq!(fs::read(versions.configuration()).unwrap(), b"old");
}
