//! The order of starting: signals, lock, store, host, monitor, pods; only then the cloud. Nothing in it
//! waits for a network.

mod build;
mod error;
mod store;

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crate::sys::tasks::Tasks;
use nix::fcntl::{Flock, FlockArg};

use self::error::io;
use super::metrics;
use super::pods::Entry;
use super::sources::{News, Senders, channels};
use super::{End, Node};
use crate::config::Config;
use crate::intake::{self, Recorded};
use crate::link::identity::Identity;
use crate::link::tls::Time;
use crate::link::{self, LinkSettings};
use crate::net::proxy::Use;
use crate::paths::Paths;
use crate::store::{Fact, StoreError};
use crate::sys::files::{self, private_dir};
use crate::sys::signal::Signals;
use crate::sys::watch::FolderWatch;

pub use self::error::StartError;
pub use self::store::STORE_IN_MEMORY;

/// How long a predecessor may take to be gone.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Runs the node until a signal asks it to stop. Containers are left running.
///
/// # Errors
/// The node cannot start, or the store fails permanently.
pub fn run(paths: &Paths, config: Config, identity: Option<Identity>) -> Result<End, StartError> {
    let signals = Signals::block().map_err(io("signals"))?;
    private_dir(&paths.run()).map_err(io("folder"))?;
    for dir in [paths.state(), paths.layers()] {
        // On a disk that takes nothing pods run on without it.
        if let Err(error) = private_dir(&dir) {
            log::error!("{error}");
        }
    }
    if let Err(error) = private_dir(&paths.static_pods()) {
        log::error!("{error}; static pods stay as they are");
    }
    run_on_tmpfs(paths)?;
    let _lock = lock(paths)?;
    // Where earlier versions kept exit records.
    let _ = std::fs::remove_dir_all(paths.state().join("exits"));
    // Mark of a shutdown that was cancelled.
    let _ = std::fs::remove_file(paths.run().join(super::shutdown::MARK));
    let tasks = Tasks::default();
    // Not smol's own: with it both threads would take turns at waiting for news, ten wake-ups each time.
    smol::future::block_on(tasks.run(async {
        // Without it the process crate would start a thread of its own to wait for children.
        tasks.spawn(async { match smol::process::driver().await {} }).detach();
        let (senders, sources) = channels();
        watch_signals(&tasks, &senders, signals);
        metrics::serve(&tasks, &senders, paths, &config);
        watch_manifests(&tasks, &senders, paths)?;
        let mut node = build::build(paths, config, &tasks, senders)?;
        node.observe(node.cx.mono());
        node.load_pods()?;
        node.image_gc.at_start(&node.cx);
        node.devices.start(&node.cx);
        node.plugins.start(&node.cx);
        node.orders.start(&node.cx)?;
        match identity {
            Some(identity) => {
                node.cx.link = Some(node.start_link(identity)?);
                node.scan_manifests()?;
            }
            None => {
                log::warn!("this node has not joined a cluster: only static pods run (edge-runtime join)");
                // All that there is for it.
                node.scan_manifests()?;
                node.listed()?;
            }
        }
        node.local_api.start(&mut node.cx, &node.launch);
        node.tell_skipped()?;
        node.notify.ready();
        let end = node.run(&sources).await?;
        log::info!("stopping; containers go on");
        Ok(end)
    }))
}

/// A device has `/run` on a tmpfs already. Otherwise (`--root` on a disk) one is mounted, so that bundles and sockets
/// do not wear flash, and end at a reboot like their processes.
fn run_on_tmpfs(paths: &Paths) -> Result<(), StartError> {
    use nix::mount::{MsFlags, mount};
    use nix::sys::statfs::{TMPFS_MAGIC, statfs};
    let run = paths.run();
    let kind = statfs(&run).map_err(|error| io(run.display().to_string())(error.into()))?;
    if kind.filesystem_type() == TMPFS_MAGIC {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some(files::RUN_TMPFS), &run, Some("tmpfs"), flags, Some("mode=0700,size=10%"))
        .map_err(|error| io(format!("a tmpfs at {}", run.display()))(error.into()))
}

/// One daemon per root, and none while it is reset.
///
/// # Errors
/// Another process holds the lock.
pub fn lock(paths: &Paths) -> Result<Flock<std::fs::File>, StartError> {
    let path = paths.run().join("daemon.lock");
    let mut options = std::fs::File::options();
    let open = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
    let mut file = open.map_err(io(path.display().to_string()))?;
    // A killed daemon holds its lock until the kernel has taken it apart, which a quick supervisor does not wait for.
    for _ in 0..LOCK_TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // For `edge-runtime shutdown`.
                let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
                written.map_err(io(path.display().to_string()))?;
                return Ok(lock);
            }
            Err((held, _)) => file = held,
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(StartError::Locked(path))
}

fn watch_signals(tasks: &Tasks, senders: &Senders, signals: Signals) {
    let news = senders.news.clone();
    let wait = async move {
        // The second one means it: a shutdown that is under way ends there.
        while signals.next().await.is_ok() {
            if news.send(News::Stop).await.is_err() {
                return;
            }
        }
    };
    tasks.spawn(wait).detach();
}

fn watch_manifests(tasks: &Tasks, senders: &Senders, paths: &Paths) -> Result<(), StartError> {
    let folder = paths.static_pods();
    let watch = FolderWatch::new(&folder).map_err(io(folder.display().to_string()))?;
    let news = senders.news.clone();
    let wait = async move {
        while watch.changed(&folder).await.is_ok() {
            if news.send(News::ManifestsChanged).await.is_err() {
                return;
            }
        }
    };
    tasks.spawn(wait).detach();
    Ok(())
}

impl Node {
    /// Loads every pod of the store, running or wanted. The monitor's list then decides which ones run.
    fn load_pods(&mut self) -> Result<(), StoreError> {
        let restored = intake::restore(&self.cx.store)?;
        restored.lost.iter().for_each(|lost| log::error!("{lost}"));
        for Recorded { pod: manifest, record, gone } in restored.recorded {
            let uid = record.uid.clone();
            self.containers.insert_all(&record);
            let manifest = Rc::new(manifest);
            self.cx.pods.insert(Entry::new(Rc::clone(&manifest), record));
            self.tokens.want(&self.cx, &uid, &manifest);
            if gone {
                self.cx.pod_gone(&uid);
            }
        }
        for (pod, refusal) in restored.wanted {
            self.pod_wanted(pod, refusal)?;
        }
        self.cx.recovery.keep(restored.kept);
        self.restore_cpus()?;
        self.begin_recovery()?;
        self.follow_neighbours()?;
        self.watch_rules();
        self.rules_at_start();
        self.plugins_at_start();
        Ok(())
    }

    fn start_link(&mut self, identity: Identity) -> Result<link::LinkHandle, StoreError> {
        let floor = self.cx.store.fact(Fact::TimeFloor)?.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let floor = floor.map_or(SystemTime::UNIX_EPOCH, SystemTime::from);
        let settings = LinkSettings {
            identity,
            time: Time { floor, ..Time::default() },
            paths: self.cx.paths.clone(),
            status: Some(link::status::file(&self.cx.paths)),
            proxy: self.cx.config.proxy.of(Use::Link),
        };
        Ok(link::start(&self.cx.tasks, settings, self.cx.senders.link.clone()))
    }
}
