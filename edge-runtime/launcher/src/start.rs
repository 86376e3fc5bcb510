//! A start of one of the node's programs: this process becomes that of the version in force. For the daemon it is first decided
//! whether a trial goes on or is over.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::decide::{Start, decide};
use crate::main_process::MainProcess;
use crate::trial;
use crate::versions::{DAEMON, Ended, State, Subject, Versions, boot_id};

/// Says something where the daemon's log goes.
pub type Say<'a> = &'a dyn Fn(&str);

/// Becomes the daemon's program with these arguments; comes back only if no version can be started.
pub fn daemon(versions: &Versions, launcher: &Path, args: &[OsString], say: Say<'_>) -> io::Error {
    let mut state = settle(versions, launcher, say);
    // With this the process that the supervisor knows is known to others, too.
    if let Err(error) = MainProcess::note_own(versions) {
        say(&format!("upgrades will not find the daemon: {error}"));
    }
    loop {
        let program = versions.programs(state.current.as_deref()).join(DAEMON);
        let error = become_program(&program, args);
        let why = format!("{}: {error}", program.display());
        if state.current.is_none() {
            return io::Error::new(error.kind(), why);
        }
        say(&format!("{why}; what was there before is started"));
        // Also where it cannot be written.
        match versions.change(|state| give_up(state, &why).clone()) {
            Ok(changed) => state = changed,
            Err(_) => drop(give_up(&mut state, &why)),
        }
    }
}

/// A version that cannot even be started: one on trial goes back to where it came from, another one to the package's.
fn give_up<'a>(state: &'a mut State, why: &str) -> &'a State {
    match &state.trial {
        Some(trial) if trial.subject == Subject::Programs => state.end(false, why),
        _ => {
            let (version, reason) = (state.current.take(), why.to_owned());
            state.last = Some(Ended { version, reason, ..Ended::default() });
        }
    }
    state
}

/// What is in force for this start.
fn settle(versions: &Versions, launcher: &Path, say: Say<'_>) -> State {
    let decided = versions.change(|state| (decide(state, &boot_id()), state.clone()));
    let (start, state) = match decided {
        Ok(decided) => decided,
        Err(error) => {
            // What cannot be remembered cannot be tried.
            let mut state = versions.read();
            let why = format!("the trial cannot be remembered: {error}");
            if let Some(trial) = &state.trial {
                let subject = trial.subject;
                state.end(false, &why);
                back(versions, subject, &why, say);
            }
            return state;
        }
    };
    match start {
        Start::Plain => {}
        Start::OnTrial => {
            say(&format!("{} is on trial", shown(&state)));
            if let Err(error) = trial::spawn(launcher, versions.root()) {
                say(&format!("nobody watches the trial, so it ends with this start: {error}"));
                let mut state = state;
                let subject = state.trial.as_ref().map(|trial| trial.subject);
                let ended = versions.change(|kept| kept.end(false, &error.to_string()));
                state.end(false, &error.to_string());
                if let (Some(subject), Ok(())) = (subject, ended) {
                    back(versions, subject, &error.to_string(), say);
                }
                return state;
            }
        }
        Start::Back { subject, reason } => back(versions, subject, &reason, say),
    }
    state
}

fn back(versions: &Versions, subject: Subject, reason: &str, say: Say<'_>) {
    say(&format!("what was there before is in force again: {reason}"));
    if subject == Subject::Configuration
        && let Err(error) = versions.restore_configuration()
    {
        say(&error.to_string());
    }
}

fn shown(state: &State) -> String {
    match (&state.trial, &state.current) {
        (Some(trial), _) if trial.subject == Subject::Configuration => "another configuration".to_owned(),
        (_, Some(version)) => format!("version {version}"),
        (_, None) => "the package's version".to_owned(),
    }
}

/// Becomes another program of the version in force, for a person: `edge-runtime status` and all others.
pub fn other(versions: &Versions, args: &[OsString]) -> io::Error {
    let current = versions.read().current;
    let folders = [versions.programs(current.as_deref()), versions.packaged().to_path_buf()];
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders {
        let program = folder.join(DAEMON);
        last = become_program(&program, args);
        last = io::Error::new(last.kind(), format!("{}: {last}", program.display()));
    }
    last
}

fn become_program(program: &Path, args: &[OsString]) -> io::Error {
    Command::new(program).arg0("edge-runtime").args(args).exec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::Trial;

    #[test]
    fn a_version_that_cannot_be_started_makes_room_for_the_one_before() {
        let trial = Trial { from: Some("1-a".into()), ..Trial::default() };
        let mut state = State { current: Some("2-b".into()), trial: Some(trial), last: None };
        give_up(&mut state, "Exec format error");
        assert_eq!(state.current.as_deref(), Some("1-a"));
        assert!(state.last.as_ref().is_some_and(|last| !last.good && last.reason.contains("Exec format")));
        give_up(&mut state, "gone, too");
        assert_eq!(state.current, None);
    }
}
