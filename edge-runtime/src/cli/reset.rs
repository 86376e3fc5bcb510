//! `edge-runtime reset`: ends every container of this node and removes what it made on the host
//! (mounts, namespaces, links, cgroups, firewall table). State on disk stays unless `--all` is given. On a terminal
//! `edge-admin` asks first.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal, stdin};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use smol::channel::bounded;

use super::admin;
use super::error::CliError;
use super::stdio::{print, start_log};
use super::verb::{Flag, Given, Operands, Verb};
use crate::config::{Config, Overrides};
use crate::helper::programs::{self, Program};
use crate::launch::runtimes::Runtimes;
use crate::launch::teardown::Teardown;
use crate::link::identity::Identity;
use crate::monitor::client::{MonitorClient, MonitorEvent, Settings};
use crate::paths::Paths;
use crate::sys::tasks::Tasks;
use crate::sys::time::within;
use crate::sys::vec_map::VecMap;
use crate::sys::{files, helper, program, socket};
use sampan_monitor::protocol::Phase;

/// A bit more than the unit gives the daemon (`TimeoutStopSec`).
const STOP: Duration = Duration::from_secs(90);
/// SIGKILL is quick; a process in uninterruptible sleep is not.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const VERB: Verb = Verb {
    name: "reset",
    about: "End all containers",
    operands: Operands::None,
    // `edge-admin` has the words of these.
    flags: &[Flag::switch("all", ""), Flag::switch("yes", "")],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    if !given.has("yes") && stdin().is_terminal() {
        let mut words: Vec<OsString> = vec!["reset".into(), "--root".into(), paths.root().into()];
        words.extend(given.has("all").then(|| "--all".into()));
        return Err(admin::run(&words));
    }
    start_log();
    if !paths.state().exists() && !paths.run().exists() {
        return print("nothing to reset");
    }
    if given.has("all") {
        refuse_mounted(&paths.state())?;
    }
    if let Some(stop) = service_stop(&paths) {
        // What it says does not matter: one that still runs has the lock.
        let _ = program::ask(stop, 4096, STOP);
    }
    files::private_dir(&paths.run())?;
    let _lock = crate::node::lock(&paths)?;
    smol::block_on(end_containers(&paths))?;
    crate::dns::client::end(&paths.dns());
    programs::ALL.iter().for_each(|program| program.end(&paths));
    helper::kill_left(|program, words| is_helper(program, words, &paths));
    remove_from_host(&paths)?;
    crate::sys::trash::sweep(&paths.trash())?;
    if given.has("all") {
        // Logs that stay are named at the end: the key goes in any case.
        let logs = remove_logs(&paths);
        for folder in [paths.state(), paths.run()] {
            // A link leads to another disk.
            if let Some(real) = files::unless_missing(folder.canonicalize()).map_err(files::named(&folder))? {
                files::remove_tree(&real)?;
            }
        }
        logs?;
    }
    print("reset: no container, mount, namespace, link or cgroup of this node is left")
}

/// Whether a process is a helper of this node. One that a daemon began to start before it was killed has no socket yet by which
/// it is told to end, and one that works for a daemon goes on without it.
fn is_helper(program: &Path, words: &[&[u8]], paths: &Paths) -> bool {
    // Verbs, each with a flag that only the daemon uses if people use the verb, too.
    const HELPERS: [(&str, &str); 7] =
        [("dns", ""), ("collect", ""), ("copy", ""), ("own", ""), ("sweep", ""), ("usage", ""), ("pull", "--helper")];
    let has = |word: &str| words.contains(&word.as_bytes());
    let after = |flag: &str, path: &Path| {
        let mut pairs = words.iter().zip(words.iter().skip(1));
        pairs.any(|(word, next)| *word == flag.as_bytes() && Path::new(OsStr::from_bytes(next)) == path)
    };
    let verb = words.get(1).copied().unwrap_or_default();
    // Behind the name of a program that was replaced stands that it was.
    let name = program.file_name().map(OsStr::as_bytes).unwrap_or_default();
    match name.split(|byte| *byte == b' ').next().unwrap_or_default() {
        b"edge-runtime" => {
            let is = |(of, flag): (&str, &str)| of.as_bytes() == verb && (flag.is_empty() || has(flag));
            HELPERS.into_iter().any(is) && after("--root", paths.root())
        }
        name => {
            let is = |one: &Program| one.name.as_bytes() == name && after("--socket", &(one.socket)(paths));
            programs::ALL.into_iter().any(is)
        }
    }
}

/// What stops the daemon where it is a service of the machine, for its supervisor would start it again. Another root is
/// another node.
fn service_stop(paths: &Paths) -> Option<Command> {
    const SCRIPT: &str = "/etc/init.d/edge-runtime";
    if paths.root() != Path::new("/") {
        return None;
    }
    let (command, args): (_, &[&str]) = if Path::new("/run/systemd/system").exists() {
        ("systemctl", &["stop", "edge-runtime.service"])
    } else if Path::new(SCRIPT).exists() {
        (SCRIPT, &["stop"])
    } else {
        return None;
    };
    let mut stop = Command::new(command);
    stop.args(args);
    Some(stop)
}

async fn end_containers(paths: &Paths) -> Result<(), CliError> {
    let executor = Tasks::default();
    let (sender, events) = bounded(64);
    let work = async {
        let monitor = MonitorClient::connect_or_spawn(&executor, paths.clone(), Settings::default(), sender);
        let mut running: VecMap<String, bool> = VecMap::new();
        loop {
            match events.recv().await {
                Ok(MonitorEvent::Reconnected { containers }) => {
                    running = containers
                        .into_iter()
                        .map(|one| (one.id, !matches!(one.phase, Phase::Exited(_) | Phase::Failed { .. })))
                        .collect();
                    for id in running.iter().filter(|(_, alive)| **alive).map(|(id, _)| id) {
                        monitor.kill(id, nix::sys::signal::Signal::SIGKILL as i32).await?;
                    }
                }
                Ok(MonitorEvent::Exited(exit)) => drop(running.insert(exit.id, false)),
                Ok(MonitorEvent::StartFailed { id, .. }) => drop(running.insert(id, false)),
                Ok(MonitorEvent::Started { id, .. }) => {
                    monitor.kill(&id, nix::sys::signal::Signal::SIGKILL as i32).await?;
                }
                Ok(MonitorEvent::Silent(Some(why))) => return Err(CliError::Failed(why)),
                Ok(MonitorEvent::LogTrouble(_) | MonitorEvent::Silent(None)) => {}
                Err(_) => return Err(CliError::Failed("the monitor cannot be reached".into())),
            }
            if running.values().all(|alive| !alive) {
                break;
            }
        }
        for id in running.keys() {
            monitor.delete(id).await?;
            monitor.forget(id).await?;
        }
        // A monitor that was never needed has nothing to end.
        let _ = monitor.shutdown_if_idle().await;
        Ok(())
    };
    let late = || Err(CliError::Failed(format!("containers still run after {} s", PATIENCE.as_secs())));
    executor.run(within(PATIENCE, work)).await.unwrap_or_else(late)
}

fn remove_from_host(paths: &Paths) -> Result<(), CliError> {
    for below in [paths.run(), paths.state()] {
        unmount_below(&below)?;
    }
    let identity = Identity::load(paths).ok().flatten();
    let name = identity.map_or_else(|| "reset".into(), |identity| identity.node);
    // The configuration names bridge and cgroup; a broken one must not keep the host dirty.
    let overrides = Overrides { node_name: Some(name), joined: None };
    let config = Config::load_lenient(&paths.config_file(), paths.root(), &overrides)
        .or_else(|_| Config::load_lenient(Path::new("/nonexistent"), paths.root(), &overrides))?
        .0;
    if config.plugins.csi {
        unmount_volumes(&config.plugins.root)?;
    }
    if config.plugins.is_on() {
        remove_sockets(&config.plugins.root);
    }
    Teardown::new(paths, Rc::new(config)).and_then(|mut teardown| teardown.node())?;
    let run = std::fs::read_dir(paths.run()).into_iter().flatten().flatten();
    let others = run.map(|entry| entry.path()).filter(|path| Runtimes::is_state(path));
    // None of them runs any more.
    let _ = std::fs::remove_file(paths.device_mappers());
    files::remove_tree(&paths.launcher())?;
    for dir in ["containers", "ns", "runc"].map(|dir| paths.run().join(dir)).into_iter().chain(others) {
        files::remove_tree(&dir)?;
    }
    let own_tmpfs = format!("{} {} tmpfs ", files::RUN_TMPFS, paths.run().display());
    if std::fs::read_to_string("/proc/self/mounts")
        .is_ok_and(|mounts| mounts.lines().any(|line| line.starts_with(&own_tmpfs)))
    {
        unmount(&paths.run())?;
    }
    Ok(())
}

/// Removes sockets that `edge-plugins` has left in the kubelet's folder, and the folders that are empty then. All else there is a
/// plugin's: it may serve another kubelet, too.
fn remove_sockets(root: &Path) {
    for ours in ["device-plugins/kubelet.sock", "pod-resources/kubelet.sock"] {
        let ours = root.join(ours);
        // A kubelet may listen there.
        if socket::connect(&ours).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            let _ = std::fs::remove_file(ours);
        }
    }
    for folder in ["device-plugins", "pod-resources", "plugins_registry", ""] {
        let _ = std::fs::remove_dir(root.join(folder));
    }
}

/// A state that is a disk of its own cannot be deleted. Mounts below it are unmounted.
fn refuse_mounted(state: &Path) -> Result<(), CliError> {
    let Some(state) = files::unless_missing(state.canonicalize())? else { return Ok(()) };
    if !files::mounts_below(&state)?.contains(&state) {
        return Ok(());
    }
    let state = state.display();
    Err(CliError::Failed(format!(
        "a disk is mounted at {state}, so reset --all cannot delete the folder; nothing was changed. Run edge-runtime reset, \
         delete what is in {state}, umount {state}, then repeat"
    )))
}

/// Deletes the logs of this node's pods.
fn remove_logs(paths: &Paths) -> std::io::Result<()> {
    let mut done = Ok(());
    for (_, folder) in crate::logs::own(paths) {
        done = done.and(files::remove_tree(&folder));
    }
    // Unless others have something there.
    let _ = std::fs::remove_dir(paths.all_pod_logs());
    done
}

fn unmount_below(path: &Path) -> Result<(), CliError> {
    // The mount table has real paths.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    unmount_in(&path)
}

/// Unmounts volumes of CSI drivers, in pods and where they are staged, like `kubeadm reset`. `edge-plugins` does not run and
/// cannot tell the drivers. The records stay, so that it tells them when it runs again.
fn unmount_volumes(root: &Path) -> Result<(), CliError> {
    // A driver may have made links in it: they are not followed.
    let Some(root) = files::unless_missing(root.canonicalize()).map_err(files::named(root))? else { return Ok(()) };
    unmount_in(&root.join("pods"))?;
    unmount_in(&root.join("plugins/kubernetes.io/csi"))?;
    // The daemon has bound the folder to itself where mounts are not shared. A disk is another device than the folder above.
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    if root.parent().is_some_and(|above| device(above) == device(&root)) {
        unmount(&root)?;
    }
    Ok(())
}

/// Newest first, so that mounts within mounts go before them.
fn unmount_in(path: &Path) -> Result<(), CliError> {
    let mounts = files::mounts_below(path)?;
    // The folder itself may be a partition of the device.
    for mount in mounts.iter().rev().filter(|mount| *mount != path) {
        unmount(mount)?;
    }
    Ok(())
}

fn unmount(mount: &Path) -> Result<(), CliError> {
    let done = files::unmount(mount).map(drop);
    done.map_err(|error| CliError::Failed(format!("cannot unmount {}: {error}", mount.display())))
}

#[cfg(test)]
mod tests;
