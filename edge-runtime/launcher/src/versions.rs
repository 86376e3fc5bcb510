//! The folders with versions of the programs, and the file that names the active one. Does not know what the programs
//! do, or when one works.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use sampan_sys::files::{lock_within, named, private_dir, remove_tree, replace, unless_missing};
use serde::{Deserialize, Serialize};

use crate::config_lock;

/// The program that a version cannot be without.
pub const DAEMON: &str = "edge-runtime";
/// What people run, beside it.
pub const ADMIN: &str = "edge-admin";
/// Timeout for the lock of the state: changing it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// A longer file is damaged.
const LONGEST: u64 = 1 << 20;

/// Where everything of this is, below one root.
#[derive(Clone, Debug)]
pub struct Versions {
    root: PathBuf,
    packaged: PathBuf,
}

/// Content of `state.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct State {
    /// Name of the version in force; absent: the package's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The trial of `current` or of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// How the last trial ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Ended>,
}

/// What is on trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    #[default]
    Programs,
    /// The earlier configuration is beside the state, see [`Versions::configuration_before`].
    Configuration,
}

/// A trial under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Trial {
    pub subject: Subject,
    /// The version to go back to; absent: the package's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The kernel's boot id: a trial does not outlive a boot.
    pub boot_id: String,
    /// How long it lasts.
    pub seconds: u64,
    /// How often the daemon was started in it.
    pub starts: u32,
    /// The link was up when it began: then it has to be at the end.
    pub link_before: bool,
    /// Uids of the pods that were ready when it began.
    pub ready_before: Vec<String>,
    /// The order (uid of its job) that this is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// How a trial has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ended {
    pub subject: Subject,
    /// The version on trial; absent: the package's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// True if it stays; false after a rollback.
    pub good: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Seconds since 1970, by the node's clock.
    pub at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl State {
    /// The trial is over, and how. Without one nothing changes.
    pub fn end(&mut self, good: bool, reason: &str) {
        let Some(trial) = self.trial.take() else { return };
        let version = self.current.clone();
        if !good && trial.subject == Subject::Programs {
            self.current.clone_from(&trial.from);
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let reason = reason.to_owned();
        let Trial { subject, from, job, .. } = trial;
        self.last = Some(Ended { subject, version, from, good, reason, at, job });
    }
}

impl Versions {
    /// `root`: `/` on a device. `packaged`: where the package's programs are.
    #[must_use]
    pub fn new(root: &Path, packaged: &Path) -> Self {
        Self { root: root.to_path_buf(), packaged: packaged.to_path_buf() }
    }

    /// Folders for a program that runs from one of them, or for the launcher: the package's folder is
    /// `../lib/edge-runtime`, relative to the launcher.
    #[must_use]
    pub fn of_this_program(root: &Path) -> Self {
        let own = std::env::current_exe().unwrap_or_default();
        let folder = own.parent().unwrap_or(Path::new("/"));
        let beside = folder.join("../lib/edge-runtime");
        match beside.join(DAEMON).exists() {
            true => Self::new(root, &beside),
            false => Self::new(root, folder),
        }
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the package's programs are.
    #[must_use]
    pub fn packaged(&self) -> &Path {
        &self.packaged
    }

    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.root.join("var/lib/edge-runtime/versions")
    }

    /// Folder of this version, or of the package.
    #[must_use]
    pub fn programs(&self, version: Option<&str>) -> PathBuf {
        match version {
            Some(name) => self.folder().join(name),
            None => self.packaged.clone(),
        }
    }

    /// Whether a name can be that of a version: it is a folder's.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '~');
        !name.is_empty() && name.len() <= 128 && name.chars().all(fits) && !name.starts_with('.')
    }

    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        self.root.join("etc/edge-runtime/config.yaml")
    }

    /// The configuration to go back to.
    #[must_use]
    pub fn configuration_before(&self) -> PathBuf {
        self.folder().join("config.before.yaml")
    }

    /// The daemon's.
    #[must_use]
    pub fn run_folder(&self) -> PathBuf {
        self.root.join("run/edge-runtime")
    }

    /// Run folder of the launcher itself: the daemon may mount something at its own.
    #[must_use]
    pub fn own_run_folder(&self) -> PathBuf {
        self.root.join("run/edge-runtime.launcher")
    }

    fn file(&self) -> PathBuf {
        self.folder().join("state.json")
    }

    /// Reads the state: empty before the first upgrade. A damaged file counts as empty, since the package's version
    /// always exists.
    #[must_use]
    pub fn read(&self) -> State {
        let mut text = Vec::new();
        // A longer file is not from this program, and may be larger than the memory.
        let read = File::open(self.file()).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text));
        let fits = read.is_ok_and(|length| u64::try_from(length).is_ok_and(|length| length <= LONGEST));
        let state: State = serde_json::from_slice(&text).unwrap_or_default();
        let names = state.current.iter().chain(state.trial.iter().filter_map(|trial| trial.from.as_ref()));
        if fits && names.into_iter().all(|name| Self::is_name(name)) { state } else { State::default() }
    }

    /// Changes it, alone: what `change` leaves behind is on the medium when this returns.
    ///
    /// # Errors
    /// It cannot be written, or another process has the lock for 10 s: all is as it was.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        private_dir(&self.folder())?;
        let lock = File::create(self.folder().join("lock")).map_err(named(&self.folder()))?;
        // A process that is stopped while it holds the lock must not keep the node from starting.
        if !lock_within(&lock, PATIENCE)? {
            return Err(io::Error::other(format!("{}: another process keeps the lock", self.folder().display())));
        }
        let mut state = self.read();
        let before = state.clone();
        let answer = change(&mut state);
        if state != before {
            let text = serde_json::to_vec(&state).map_err(io::Error::other)?;
            replace(&self.file(), &text, true).map_err(named(&self.file()))?;
        }
        Ok(answer)
    }

    /// Locks the arrival of a version, from its first byte until its trial has begun: one at a time, and nothing is
    /// deleted meanwhile. `wait`: wait for the other holder; otherwise that is an error.
    ///
    /// # Errors
    /// The disk cannot be written, or another process holds the lock.
    pub fn lock_arrival(&self, wait: bool) -> io::Result<Flock<File>> {
        private_dir(&self.folder())?;
        let file = File::create(self.folder().join("arriving.lock")).map_err(named(&self.folder()))?;
        let how = if wait { FlockArg::LockExclusive } else { FlockArg::LockExclusiveNonblock };
        Flock::lock(file, how).map_err(|(_, error)| io::Error::from(error))
    }

    /// The configuration is again what it was before a trial of another one. Repeating it does no harm.
    ///
    /// # Errors
    /// It cannot be written.
    fn restore_configuration(&self) -> io::Result<()> {
        let (before, file) = (self.configuration_before(), self.configuration());
        match unless_missing(fs::read(&before))? {
            // That there was none.
            Some(text) if text.is_empty() => unless_missing(fs::remove_file(&file)).map(drop),
            Some(text) => replace(&file, &text, true),
            None => Ok(()),
        }
        .map_err(named(&file))
    }

    /// Restores the earlier configuration, if the trial is about the configuration.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn restore(&self, subject: Subject) -> io::Result<()> {
        if subject == Subject::Configuration { self.restore_configuration() } else { Ok(()) }
    }

    /// Ends the running trial as failed, if `is` accepts it; returns whether it did. Restores the configuration first:
    /// after a power cut in between the trial still exists, and is rolled back again.
    ///
    /// # Errors
    /// The disk cannot be written: the trial continues.
    pub fn go_back(&self, is: impl FnOnce(&State) -> bool, reason: &str) -> io::Result<bool> {
        let _lock = self.lock_configuration();
        self.go_back_locked(is, reason)
    }

    /// Locks the configuration for a rollback, if it is on trial: a command that has read it would write it again. Without the
    /// lock, or after 10 s, the rollback goes on. Take it before the lock of the state.
    #[must_use]
    pub fn lock_configuration(&self) -> Option<File> {
        let on_trial = self.read().trial.filter(|trial| trial.subject == Subject::Configuration);
        on_trial.and_then(|_| config_lock::take(&self.configuration()).ok())
    }

    /// Same as [`Versions::go_back`], for a caller that has the lock of the configuration.
    ///
    /// # Errors
    /// Same as [`Versions::go_back`].
    pub fn go_back_locked(&self, is: impl FnOnce(&State) -> bool, reason: &str) -> io::Result<bool> {
        self.change(|state| {
            let Some(subject) = state.trial.as_ref().map(|trial| trial.subject).filter(|_| is(state)) else {
                return Ok(false);
            };
            self.restore(subject)?;
            state.end(false, reason);
            Ok(true)
        })?
    }

    /// Deletes unused versions: not active, not the rollback target, and not running. Deletes nothing while another
    /// version arrives.
    ///
    /// # Errors
    /// One cannot be deleted.
    pub fn prune(&self, state: &State, runs: &dyn Fn(&Path) -> bool) -> io::Result<()> {
        let Ok(_lock) = self.lock_arrival(false) else { return Ok(()) };
        let from = state.trial.iter().filter_map(|trial| trial.from.as_deref());
        let last = state.last.iter().filter(|last| last.good).filter_map(|last| last.from.as_deref());
        let kept: Vec<&str> = state.current.as_deref().into_iter().chain(from).chain(last).collect();
        let Some(entries) = unless_missing(fs::read_dir(self.folder()))? else { return Ok(()) };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !kept.contains(&name) && !runs(&path) {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }
}

/// The kernel's name for this boot.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
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
        for damaged in ["", "{", "[]", "\0\0", r#"{"current":"../../bin"}"#, r#"{"current":"a/b"}"#, r#"{"current":7}"#]
        {
            fs::write(versions.file(), damaged).unwrap();
            assert_eq!(versions.read(), State::default(), "{damaged}");
        }
    }

    #[test]
    fn failed_trial_is_rolled_back_with_a_reason() {
        let trial = Trial { from: Some("1-a".into()), job: Some("j".into()), ..Trial::default() };
        let mut state = State { current: Some("2-b".into()), trial: Some(trial.clone()), last: None };
        let mut good = state.clone();
        state.end(false, "it crashed");
        let last = state.last.clone().unwrap();
        assert_eq!((state.current.as_deref(), state.trial.is_none()), (Some("1-a"), true));
        assert_eq!((last.version.as_deref(), last.good, &*last.reason), (Some("2-b"), false, "it crashed"));
        good.end(true, "");
        assert_eq!(good.current.as_deref(), Some("2-b"));
        let subject = Subject::Configuration;
        let mut state = State { current: Some("2-b".into()), trial: Some(Trial { subject, ..trial }), last: None };
        state.end(false, "no link");
        assert_eq!(state.current.as_deref(), Some("2-b"), "the programs were not on trial");
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
}
