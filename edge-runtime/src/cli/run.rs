//! `edge-runtime run`: be the node.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::verb::{Flag, Given, Operands, Verb};
use super::{CliError, print};
use crate::config::{Config, ConfigFile, Overrides};
use crate::devices;
use crate::link::identity::Identity;
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
    about: "be the node, run its pods until told to stop",
    operands: Operands::None,
    flags: &[
        Flag::value("config", "FILE", "in place of etc/edge-runtime/config.yaml"),
        Flag::value("node", "NAME", "name of the node, unless it has joined"),
        Flag::switch("print-config", "print the configuration in force, as one that can be saved, and end"),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let (paths, shown) = (given.paths()?, given.has("print-config"));
    let file = given.path("config").unwrap_or_else(|| paths.config_file());
    // A damaged identity must not keep the known pods from running.
    let (identity, damage) = Identity::load(&paths).map_or_else(|error| (None, Some(error)), |known| (known, None));
    let joined = identity.as_ref().map(|identity| identity.node.clone());
    let overrides = Overrides { node_name: given.one("node")?, joined };
    // `--print-config` fails on a wrong key; a node runs nevertheless, since its program may have been rolled back.
    let (typed, left_out) =
        if shown { ConfigFile::read(&file).map(|typed| (typed, Vec::new())) } else { ConfigFile::read_lenient(&file) }?;
    let printed = shown.then(|| typed.clone());
    let config = Config::from_file(typed, &file, paths.root(), &overrides)?;
    if let Some(joined) = overrides.joined.filter(|joined| *joined != config.node_name) {
        return Err(CliError::Failed(format!(
            "this device joined as node {joined}, but is configured as {}: remove node-name from {} or join again",
            config.node_name,
            file.display()
        )));
    }
    if let Some(mut typed) = printed {
        if let Some(section) = &mut typed.device_twin {
            *section = fill_devices(section, &file)?;
        }
        let yaml = config.to_yaml(&typed, &std::fs::read_to_string(&file).unwrap_or_default())?;
        return print(yaml.trim_end());
    }
    super::start_log();
    if let Some(error) = tune_allocator() {
        log::warn!(
            "the node will keep more memory than it needs: it could not begin again with {}: {error}",
            TUNABLES.0
        );
    }
    // Where the program is not there, it is looked for again and again.
    let checked = config.device_twin.as_ref().map(|typed| check_devices(typed, &file)).transpose()?;
    let unknown = checked.and_then(Result::ok).map(|(_, unknown)| unknown);
    left_out
        .into_iter()
        .chain(unknown.into_iter().flatten())
        .for_each(|said| log::warn!("{said}; the node runs without that key"));
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

/// What the helper's program says of its section; an error: that it is wrong.
fn check_devices(typed: &Value, file: &Path) -> Result<io::Result<(Value, Vec<String>)>, CliError> {
    match devices::check::check(&devices::client::program(), typed) {
        Ok(checked) => checked.map(Ok).map_err(|why| wrong_devices(file, &why)),
        Err(error) => Ok(Err(error)),
    }
}

/// Fills in the defaults of the section for `--print-config`: an unknown key is an error.
fn fill_devices(typed: &Value, file: &Path) -> Result<Value, CliError> {
    match check_devices(typed, file)? {
        Ok((filled, unknown)) if unknown.is_empty() => Ok(filled),
        Ok((_, unknown)) => Err(wrong_devices(file, &unknown.join(", "))),
        Err(error) => Err(wrong_devices(file, &format!("device-twin: cannot be checked: {error}"))),
    }
}

fn wrong_devices(file: &Path, why: &str) -> CliError {
    CliError::Failed(format!("config file {}, key {why}", file.display()))
}

/// Settings of glibc's allocator. By default glibc keeps freed blocks for the next requests of their size (seven of
/// each size and thread), and puts rather large blocks among the small ones. After fifty pods have come and gone each
/// of these holds a page of theirs, 0.8 MB in all. glibc reads the variable only when a program starts (its manual,
/// Memory Allocation Tunables), so the process executes itself once more. Child processes inherit it: the monitor and
/// the helpers need little memory, too. OCI runtimes do not inherit it: they must be fast.
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
