//! The folders with versions of the programs, and the file that names the active one. Does not know what the programs
//! do, or when one works.

mod state;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use sampan_sys::files::{lock_within, named, private_dir, remove_tree, replace, unless_missing};

use crate::config_lock;

pub use state::{Ended, State, Subject, Trial};

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
mod tests;
