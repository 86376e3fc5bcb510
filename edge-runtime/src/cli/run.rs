//! `edge-runtime run`: be the node.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::admin;
use super::error::CliError;
use super::stdio::start_log;
use super::verb::{Flag, Given, Operands, ROOT, Verb};
use crate::config::{Config, ConfigFile, Overrides};
use crate::devices;
use crate::helper::programs::DEVICES;
use crate::link::identity::{Identity, IdentityError};
use crate::node::{self, End, StartError};
use crate::store::StoreError;
use crate::sys::{descriptors, oom, signal};

/// Between attempts on a disk that is full.
const PAUSE: (Duration, bool) = (Duration::from_secs(10), false);
/// On one that takes nothing and perhaps never will: with the store in memory.
const MEMORY: (Duration, bool) = (Duration::from_secs(1), true);
/// Before a store is opened again that was held by others, or that was found damaged and is made of what is left.
const SHORT: (Duration, bool) = (Duration::from_secs(1), false);

pub(super) const VERB: Verb = Verb {
    name: "run",
    about: "Run the node and its pods until stopped",
    operands: Operands::None,
    flags: &[
        Flag::value("config", "FILE", "default etc/edge-runtime/config.yaml"),
        Flag::value("node", "NAME", "name of a node that has not joined"),
        Flag::switch("print-config", "print the configuration in force as YAML and exit"),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    if given.has("print-config") {
        return Err(admin::run(&print_config(&given)));
    }
    let ended = serve(&given);
    forget_starts(&given);
    ended
}

/// Deletes the launcher's count of starts: this process ends in order, so its program is not damaged.
fn forget_starts(given: &Given) {
    if let Ok(paths) = given.paths() {
        // The file does not exist without a launcher.
        let _ = std::fs::remove_file(paths.starts());
    }
}

fn serve(given: &Given) -> Result<(), CliError> {
    // Before anything is read: the process begins again.
    let untuned = tune_allocator();
    let paths = given.paths()?;
    let file = config_file(given)?;
    // A node runs without a key that it does not know: its program may have been rolled back.
    let (typed, left_out) = ConfigFile::read_lenient(&file)?;
    let Configured { config, identity, damage } = configure(given, typed, &file)?;
    start_log();
    if let Some(error) = untuned {
        log::warn!(
            "the node will keep more memory than it needs: it could not begin again with {}: {error}",
            TUNABLES.0
        );
    }
    let unknown = match &config.device_twin {
        Some(typed) => unknown_of_devices(typed, &file)?,
        None => Vec::new(),
    };
    left_out.into_iter().chain(unknown).for_each(|said| log::warn!("{said}; the node runs without that key"));
    if let Some(error) = damage {
        log::error!("{error}; the node runs its pods without a cloud until it joins again (edge-runtime join)");
    }
    descriptors::raise();
    if let Err(error) = oom::protect() {
        log::info!("the node may be killed for want of memory like any process (oom_score_adj {}): {error}", oom::NODE);
    }
    match node::run(&paths, config, identity) {
        Err(StartError::Store(error)) if error.is_passing() || error.is_damage() => Err(begin_again(&error, SHORT)),
        Err(StartError::Store(error)) if error.is_of_disk() && !error.is_full() => Err(begin_again(&error, MEMORY)),
        Err(StartError::Store(error)) if error.is_of_disk() => Err(begin_again(&error, PAUSE)),
        Ok(End::Stopped) => Ok(()),
        Ok(End::Again) => Err(itself().exec().into()),
        Err(error) => Err(error.into()),
    }
}

/// The configuration of the node, and who it is.
pub struct Configured {
    pub config: Config,
    pub identity: Option<Identity>,
    /// Why its identity cannot be read: this must not keep the known pods from running.
    pub damage: Option<IdentityError>,
}

/// The configuration that these flags and `typed`, which was read from `file`, give the node.
///
/// # Errors
/// A value is wrong, or the node is configured under another name than it has joined with.
pub fn configure(given: &Given, typed: ConfigFile, file: &Path) -> Result<Configured, CliError> {
    let paths = given.paths()?;
    let (identity, damage) = Identity::load(&paths).map_or_else(|error| (None, Some(error)), |known| (known, None));
    let joined = identity.as_ref().map(|identity| identity.node.clone());
    let overrides = Overrides { node_name: given.one("node")?, joined };
    let config = Config::from_file(typed, file, paths.root(), &overrides)?;
    if let Some(joined) = overrides.joined.filter(|joined| *joined != config.node_name) {
        return Err(CliError::Failed(format!(
            "this device joined as node {joined}, but is configured as {}: remove node-name from {} or join again",
            config.node_name,
            file.display()
        )));
    }
    Ok(Configured { config, identity, damage })
}

/// The file that the flags name, or the usual one.
///
/// # Errors
/// The current folder cannot be read.
pub fn config_file(given: &Given) -> Result<PathBuf, CliError> {
    let usual = given.paths()?.config_file();
    Ok(given.path("config").unwrap_or(usual))
}

/// How `edge-admin` is asked for the same.
fn print_config(given: &Given) -> Vec<OsString> {
    let mut args = vec!["print-config".into()];
    for flag in ["config", "node", ROOT.long] {
        if let Some(value) = given.values(flag).last() {
            args.extend([format!("--{flag}").into(), value.clone()]);
        }
    }
    args
}

/// Keys of the helper's section that its program does not know. A program that is not there is looked for again and again.
fn unknown_of_devices(typed: &Value, file: &Path) -> Result<Vec<String>, CliError> {
    match devices::check::check(&DEVICES.path(), typed) {
        Ok(Ok((_, unknown))) => Ok(unknown),
        Ok(Err(why)) => Err(CliError::Failed(format!("config file {}, key {why}", file.display()))),
        Err(_) => Ok(Vec::new()),
    }
}

/// Settings of glibc's allocator. By default glibc keeps freed blocks for the next requests of their size (seven of
/// each size and thread), and puts rather large blocks among the small ones. After fifty pods have come and gone each
/// of these keeps one of their pages in use, 0.8 MB in all. glibc reads the variable only when a program starts (its
/// manual, Memory Allocation Tunables), so the process executes itself once more. Its helpers inherit it: they need
/// little memory, too. Other programs do not inherit it (nft, the monitor with its OCI runtimes): they must be fast.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.mmap_threshold=32768");

/// Executes the process again with the setting; returns only if that is not needed or fails. A value that the user has
/// set stays.
fn tune_allocator() -> Option<io::Error> {
    if cfg!(not(target_env = "gnu")) || std::env::var_os(TUNABLES.0).is_some() {
        return None;
    }
    Some(itself().env(TUNABLES.0, TUNABLES.1).exec())
}

/// The same program with the same arguments. By its path if that still leads somewhere: ps(1) shows the name of the file.
fn itself() -> Command {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    let mut again = Command::new(path.unwrap_or_else(|| "/proc/self/exe".into()));
    again.arg0(name).args(args);
    again
}

/// Restarts the node from its stored state, after the disk refused a write or the store an answer. The process restarts
/// itself: a supervisor gives up after a few quick restarts (systemd's StartLimitBurst), and would not start the node
/// once there is room again.
fn begin_again(error: &StoreError, (pause, in_memory): (Duration, bool)) -> CliError {
    log::error!("{error}; beginning again in {} s", pause.as_secs());
    // Can be ended while it waits.
    let _ = signal::unmask_self();
    let _ = descriptors::restore_self();
    std::thread::sleep(pause);
    let mut again = itself();
    again.env_remove(node::STORE_IN_MEMORY);
    if in_memory {
        again.env(node::STORE_IN_MEMORY, "1");
    }
    again.exec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_in_order_is_no_quick_start() {
        let root = tempfile::tempdir().unwrap();
        let given = VERB.parse(lexopt::Parser::from_args([OsString::from("--root"), root.path().into()])).unwrap();
        forget_starts(&given);
        let starts = given.paths().unwrap().starts();
        std::fs::create_dir_all(starts.parent().unwrap()).unwrap();
        std::fs::write(&starts, "{}").unwrap();
        forget_starts(&given);
        assert!(!starts.exists() && starts.parent().unwrap().exists());
    }

    #[test]
    fn printing_is_asked_with_the_same_flags() {
        let words = ["--root", "/a", "--print-config", "--node", "n", "--root", "/b"];
        let given = VERB.parse(lexopt::Parser::from_args(words)).unwrap();
        assert_eq!(print_config(&given), ["print-config", "--node", "n", "--root", "/b"]);
    }
}
