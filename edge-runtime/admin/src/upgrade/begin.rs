//! The beginning of a trial: what the node is like before it is noted, another version or configuration is put in force, and the
//! daemon is ended so that its supervisor starts it anew.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use edge_runtime::paths::Paths;
use sampan_launcher::look::unlinked;
use sampan_launcher::main_process::MainProcess;
use sampan_launcher::versions::{Ended, State, Subject, Trial, Versions, boot_id};
use sampan_sys::files::{private_dir, replace, unless_missing};

use super::UpgradeError;
use crate::pods;

/// For the supervisor to start the daemon again.
const RESTART: Duration = Duration::from_secs(90);

/// What is to be tried.
pub(crate) enum What<'a> {
    /// A version that lies in its folder.
    Programs(&'a str),
    /// The text of a configuration.
    Configuration(&'a str),
}

/// Begins it. Comes back when the daemon has ended.
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
            "the daemon does not run, or was not started by the launcher of the package: nobody would go back to the old \
             version if this one is bad"
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
        keep_configuration(versions).map_err(UpgradeError::io(&versions.configuration_before()))?;
    }
    let begun = versions.change(|state| start(state, what, trial)).map_err(UpgradeError::io(&versions.folder()))?;
    begun?;
    if let What::Configuration(text) = what
        && let Err(source) = replace(&versions.configuration(), text.as_bytes(), true)
    {
        let _ = versions.change(|state| state.end(false, "the configuration could not be written"));
        return Err(UpgradeError::Io { path: versions.configuration(), source });
    }
    daemon.end();
    Ok(())
}

fn start(state: &mut State, what: &What<'_>, mut trial: Trial) -> Result<(), UpgradeError> {
    if state.trial.is_some() {
        return Err(UpgradeError::Refused("another trial is under way: edge-runtime upgrade --status".to_owned()));
    }
    if let What::Programs(name) = what {
        trial.from = state.current.replace((*name).to_owned());
    } else {
        trial.from.clone_from(&state.current);
    }
    state.trial = Some(trial);
    Ok(())
}

/// An empty file says that there is none.
fn keep_configuration(versions: &Versions) -> io::Result<()> {
    let text = unless_missing(fs::read(versions.configuration()))?.unwrap_or_default();
    private_dir(&versions.folder())?;
    replace(&versions.configuration_before(), &text, true)
}

/// Waits until the trial is over; `tell` hears each second how long it still lasts. None if another one has begun meanwhile.
///
/// # Errors
/// Nobody starts the daemon again: what was there before is in force.
pub(crate) fn wait(versions: &Versions, tell: &mut dyn FnMut(u64)) -> Result<Option<Ended>, UpgradeError> {
    let began = Instant::now();
    let mut seen = began;
    loop {
        let state = versions.read();
        let Some(trial) = state.trial else { return Ok(state.last) };
        if MainProcess::find(versions).is_some() {
            seen = Instant::now();
        }
        if seen.elapsed() > RESTART {
            let why = format!("nobody has started the daemon again for {} s", RESTART.as_secs());
            versions.change(|state| state.end(false, &why)).map_err(UpgradeError::io(&versions.folder()))?;
            if trial.subject == Subject::Configuration {
                versions.restore_configuration().map_err(UpgradeError::io(&versions.configuration()))?;
            }
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
    fn there_is_one_trial_at_a_time_and_it_knows_from_where_it_came() {
        let mut state = State { current: Some("1-a".into()), ..State::default() };
        start(&mut state, &What::Programs("2-b"), Trial::default()).unwrap();
        let trial = state.trial.clone().unwrap();
        assert_eq!((state.current.as_deref(), trial.from.as_deref()), (Some("2-b"), Some("1-a")));
        assert!(
            start(&mut state, &What::Configuration(""), Trial::default()).unwrap_err().to_string().contains("another")
        );
        assert_eq!(state.trial, Some(trial));
        state.trial = None;
        start(&mut state, &What::Configuration(""), Trial::default()).unwrap();
        assert_eq!(state.current.as_deref(), Some("2-b"));
    }

    #[test]
    fn without_a_daemon_of_the_launcher_nothing_is_begun() {
        let temp = tempfile::tempdir().unwrap();
        let (paths, versions) = (Paths::new(temp.path()), Versions::new(temp.path(), temp.path()));
        let why = begin(&What::Programs("2-b"), 300, None, &paths, &versions).unwrap_err().to_string();
        assert!(why.contains("launcher"), "{why}");
        assert_eq!(versions.read(), State::default());
    }
}
