//! The beginning of a trial: records the state of the node, activates another version or configuration, and ends the
//! daemon so that its supervisor restarts it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use edge_runtime::paths::Paths;
use sampan_launcher::look::unlinked;
use sampan_launcher::main_process::MainProcess;
use sampan_launcher::versions::{Ended, State, Subject, Trial, Versions, boot_id};
use sampan_sys::files::{replace, unless_missing};

use super::error::UpgradeError;
use crate::pods;

/// Timeout for the supervisor's restart of the daemon.
const RESTART: Duration = Duration::from_secs(90);

/// Time for the watcher of a trial to finish after the trial's end: its last check, a full disk, a daemon that does not
/// answer.
const JUDGED: Duration = Duration::from_secs(180);

/// What to try.
pub(crate) enum What<'a> {
    /// A version that lies in its folder.
    Programs(&'a str),
    /// The text of a configuration.
    Configuration(&'a str),
}

/// Begins it. Comes back when the daemon has ended. The caller has the lock of a configuration to try.
///
/// # Errors
/// There is a trial already, the daemon was not started by the launcher, or the disk takes nothing: nothing has changed.
pub(crate) fn begin(
    what: &What<'_>,
    seconds: u64,
    job: Option<&str>,
    paths: &Paths,
    versions: &Versions,
) -> Result<(), UpgradeError> {
    let Some(daemon) = MainProcess::find(versions) else {
        return Err(UpgradeError::Refused(
            "the daemon does not run, or was not started by the launcher of the package, so a bad version could not be \
             rolled back"
                .to_owned(),
        ));
    };
    let before =
        pods::all(paths).map_err(|error| UpgradeError::Refused(format!("the pods here are not known: {error}")))?;
    let mut trial = Trial {
        boot_id: boot_id(),
        seconds: seconds.max(10),
        link_before: unlinked(&versions.run_folder().join("link.json")).is_none(),
        ready_before: before.into_iter().filter(|(_, ready)| *ready).map(|(uid, _)| uid).collect(),
        job: job.map(str::to_owned),
        ..Trial::default()
    };
    if let What::Configuration(_) = what {
        trial.subject = Subject::Configuration;
    }
    let begun = versions.change(|state| start(state, what, trial, &|| keep_configuration(versions)));
    begun.map_err(UpgradeError::io(&versions.folder()))??;
    if let What::Configuration(text) = what
        && let Err(source) = replace(&versions.configuration(), text.as_bytes(), true)
    {
        let _ = versions.go_back_locked(|_| true, "the configuration could not be written");
        return Err(UpgradeError::Io { path: versions.configuration(), source });
    }
    daemon.end();
    Ok(())
}

/// Begins a trial. `keep` saves the earlier configuration for a rollback; it does not touch that of another trial.
fn start(
    state: &mut State,
    what: &What<'_>,
    mut trial: Trial,
    keep: &dyn Fn() -> Result<(), UpgradeError>,
) -> Result<(), UpgradeError> {
    if state.trial.is_some() {
        return Err(UpgradeError::Refused("another trial is under way: edge-runtime upgrade --status".to_owned()));
    }
    if let What::Programs(name) = what {
        trial.from = state.current.replace((*name).to_owned());
    } else {
        keep()?;
        trial.from.clone_from(&state.current);
    }
    state.trial = Some(trial);
    Ok(())
}

/// An empty file means that there was no configuration.
fn keep_configuration(versions: &Versions) -> Result<(), UpgradeError> {
    let (file, before) = (versions.configuration(), versions.configuration_before());
    let text = unless_missing(fs::read(&file)).map_err(UpgradeError::io(&file))?.unwrap_or_default();
    replace(&before, &text, true).map_err(UpgradeError::io(&before))
}

/// Ends a trial: reactivates what was there before, and ends the daemon so that it restarts with that. Returns whether
/// there was a trial.
///
/// # Errors
/// The disk takes nothing.
pub(crate) fn give_up(versions: &Versions, why: &str) -> Result<bool, UpgradeError> {
    let was = versions.go_back(|_| true, why).map_err(UpgradeError::io(&versions.folder()))?;
    if let Some(daemon) = MainProcess::find(versions).filter(|_| was) {
        daemon.end();
    }
    Ok(was)
}

/// Returns why the trial can no longer end by itself: it has lasted `lasted`, and no daemon was seen for `unseen`.
fn overdue(trial: &Trial, lasted: Duration, unseen: Duration) -> Option<String> {
    if unseen > RESTART {
        return Some(format!("nothing has started the daemon again for {} s", RESTART.as_secs()));
    }
    let most = Duration::from_secs(trial.seconds.saturating_add(JUDGED.as_secs()));
    (lasted > most)
        .then(|| format!("the trial of {} s has no result: its watcher must have been killed", trial.seconds))
}

/// Waits for the end of the trial, and calls `tell` each second with the remaining time. Returns `None` if another
/// trial has begun meanwhile.
///
/// # Errors
/// The daemon is not restarted, or does not watch the trial: the previous state is active again.
pub(crate) fn wait(versions: &Versions, tell: &mut dyn FnMut(u64)) -> Result<Option<Ended>, UpgradeError> {
    let began = Instant::now();
    let mut seen = began;
    loop {
        let state = versions.read();
        let Some(trial) = state.trial else { return Ok(state.last) };
        if MainProcess::find(versions).is_some() {
            seen = Instant::now();
        }
        if let Some(why) = overdue(&trial, began.elapsed(), seen.elapsed()) {
            give_up(versions, &why)?;
            return Err(UpgradeError::Refused(why));
        }
        tell(trial.seconds.saturating_sub(began.elapsed().as_secs()));
        thread::sleep(Duration::from_secs(1));
    }
}

/// Where the launcher keeps its things for this node.
pub(crate) fn versions(paths: &Paths) -> Versions {
    let here = Versions::of_this_program(paths.root());
    // This program may be of a version that came later: the package's is where the launcher is.
    match here.packaged().starts_with(here.folder()) {
        true => Versions::new(paths.root(), Path::new("/usr/lib/edge-runtime")),
        false => here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_trial_runs_and_stores_its_origin() {
        let kept = std::cell::Cell::new(0);
        let keep = || {
            kept.set(kept.get() + 1);
            Ok(())
        };
        let mut state = State { current: Some("1-a".into()), ..State::default() };
        start(&mut state, &What::Programs("2-b"), Trial::default(), &keep).unwrap();
        let trial = state.trial.clone().unwrap();
        assert_eq!((state.current.as_deref(), trial.from.as_deref()), (Some("2-b"), Some("1-a")));
        let refused = start(&mut state, &What::Configuration(""), Trial::default(), &keep).unwrap_err().to_string();
        assert!(refused.contains("another"), "{refused}");
        assert_eq!(kept.get(), 0, "what the trial under way goes back to is not touched");
        assert_eq!(state.trial, Some(trial));
        state.trial = None;
        start(&mut state, &What::Configuration(""), Trial::default(), &keep).unwrap();
        assert_eq!((state.current.as_deref(), kept.get()), (Some("2-b"), 1));
        let before = State { trial: None, ..state };
        let mut state = before.clone();
        let full = || Err(UpgradeError::Refused("no room".into()));
        start(&mut state, &What::Configuration(""), Trial::default(), &full).unwrap_err();
        assert_eq!(state, before);
    }

    #[test]
    fn refused_configuration_keeps_the_rollback_of_a_running_trial() {
        let temp = tempfile::tempdir().unwrap();
        let (paths, versions) = (Paths::new(temp.path()), Versions::new(temp.path(), temp.path()));
        fs::create_dir_all(versions.configuration().parent().unwrap()).unwrap();
        fs::write(versions.configuration(), "on trial").unwrap();
        MainProcess::note_own(&versions).unwrap();
        let trial = Trial { subject: Subject::Configuration, ..Trial::default() };
        versions.change(|state| state.trial = Some(trial)).unwrap();
        fs::write(versions.configuration_before(), "before").unwrap();
        let why = begin(&What::Configuration("next"), 300, None, &paths, &versions).unwrap_err().to_string();
        assert!(why.contains("another trial"), "{why}");
        assert_eq!(fs::read(versions.configuration_before()).unwrap(), b"before");
        assert_eq!(fs::read(versions.configuration()).unwrap(), b"on trial");
    }

    #[test]
    fn abandoned_trial_is_ended() {
        let seconds = Duration::from_secs;
        let trial = Trial { seconds: 300, subject: Subject::Configuration, ..Trial::default() };
        assert_eq!(overdue(&trial, seconds(310), seconds(30)), None);
        assert!(overdue(&trial, seconds(100), seconds(91)).unwrap().contains("started the daemon"));
        assert!(overdue(&trial, seconds(481), seconds(0)).unwrap().contains("watcher"));
        let temp = tempfile::tempdir().unwrap();
        let versions = Versions::new(temp.path(), temp.path());
        assert!(!give_up(&versions, "x").unwrap());
        fs::create_dir_all(versions.configuration().parent().unwrap()).unwrap();
        versions.change(|state| state.trial = Some(trial)).unwrap();
        fs::write(versions.configuration_before(), "before").unwrap();
        assert!(give_up(&versions, "x").unwrap());
        assert_eq!(fs::read(versions.configuration()).unwrap(), b"before");
        assert!(versions.read().last.is_some_and(|last| !last.good && last.reason == "x"));
    }

    #[test]
    fn trial_needs_a_daemon_of_the_launcher() {
        let temp = tempfile::tempdir().unwrap();
        let (paths, versions) = (Paths::new(temp.path()), Versions::new(temp.path(), temp.path()));
        let why = begin(&What::Programs("2-b"), 300, None, &paths, &versions).unwrap_err().to_string();
        assert!(why.contains("launcher"), "{why}");
        assert_eq!(versions.read(), State::default());
    }
}
