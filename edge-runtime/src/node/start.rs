//! The order of starting: signals, lock, store, host, monitor, pods; only then the cloud. Nothing in it
//! waits for a network.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crate::sys::tasks::Tasks;
use edge_protocol::message::Report;
use nix::fcntl::{Flock, FlockArg};

use super::Node;
use super::backup::Backup;
use super::containers::Containers;
use super::context::Context;
use super::doubt::Doubt;
use super::ends::Ends;
use super::ephemeral_storage::EphemeralStorage;
use super::event_correlator::EventCorrelator;
use super::events::about_node;
use super::eviction::Eviction;
use super::hooks::Hooks;
use super::housekeeping::Housekeeping;
use super::idle::Idle;
use super::image_gc::ImageGc;
use super::node_status::NodeStatus;
use super::notify::Notify;
use super::outgoing::Outgoing;
use super::pods::{Entry, Pods};
use super::poison::Poison;
use super::probes::Probes;
use super::pulls::Pulls;
use super::shutdown::Shutdown;
use super::sources::{News, Senders, channels};
use super::static_pods::StaticPods;
use super::status_resync::StatusResync;
use super::streams::Streams;
use super::tokens::Tokens;
use crate::clock::Clock;
use crate::config::Config;
use crate::eviction::{Manager, measure};
use crate::image::layers::Layers;
use crate::image::settle::settle;
use crate::intake::{self, Recorded};
use crate::launch::Launcher;
use crate::launch::launcher::LauncherError;
use crate::launch::runtimes::Runtimes;
use crate::link::identity::{Identity, IdentityError};
use crate::link::tls::Time;
use crate::link::{self, LinkSettings};
use crate::monitor::client::{MonitorClient, Settings};
use crate::monitor::exec::{self, exec};
use crate::paths::Paths;
use crate::pod::status::HostFacts;
use crate::probe::{ExecProbe, Supervisor};
use crate::store::{Fact, Opened, Quarantined, Store, StoreError};
use crate::sys::board::Sensors;
use crate::sys::files::{self, private_dir};
use crate::sys::host;
use crate::sys::reserve::Reserve;
use crate::sys::signal::Signals;
use crate::sys::watch::FolderWatch;

/// In the environment of a daemon that has found that its disk takes nothing.
pub const STORE_IN_MEMORY: &str = "EDGE_RUNTIME_STORE_IN_MEMORY";

/// How long a predecessor may take to be gone.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Why the node did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("another edge-runtime runs on this root: {} is locked", .0.display())]
    Locked(PathBuf),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |source| StartError::Io { what, source }
}

/// Is the node until a signal asks it to stop. Containers are left running.
///
/// # Errors
/// What keeps the node from starting, or the store failing for good.
pub fn run(paths: &Paths, config: Config, identity: Option<Identity>) -> Result<(), StartError> {
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
    // Of a shutdown that did not come about.
    let _ = std::fs::remove_file(paths.run().join(super::shutdown::MARK));
    let tasks = Tasks::default();
    // Not smol's own: with it both threads would take turns at waiting for news, ten wake-ups each time.
    smol::future::block_on(tasks.run(async {
        // Without it the process crate would start a thread of its own to wait for children.
        tasks.spawn(async { match smol::process::driver().await {} }).detach();
        let (senders, sources) = channels();
        watch_signals(&tasks, &senders, signals);
        watch_manifests(&tasks, &senders, paths)?;
        let mut node = build(paths, config, &tasks, senders)?;
        node.observe(node.cx.mono());
        node.load_pods()?;
        node.image_gc.at_start(&node.cx);
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
        node.tell_skipped()?;
        node.notify.ready();
        node.run(&sources).await?;
        log::info!("stopping; containers go on");
        Ok(())
    }))
}

/// A device has `/run` on a tmpfs already. Elsewhere (`--root` on a disk) one is mounted, so that bundles and
/// sockets wear no flash, and a reboot forgets them as it forgets the processes.
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

fn build(paths: &Paths, config: Config, tasks: &Tasks, senders: Senders) -> Result<Node, StartError> {
    let clock = Clock::new().map_err(io("/proc/sys/kernel/random/boot_id"))?;
    // The store must open on a full disk, too.
    let reserve = Reserve::new(paths.reserve());
    maintain(&reserve, paths);
    let opened = open_store(paths)?;
    let mut store = opened.store;
    store.keep_secrets_in_memory(config.security.secrets_in_memory)?;
    let mut notes = vec![(false, "Starting", "Starting edge-runtime.".to_owned())];
    if let Some(Quarantined { aside, why, rows }) = &opened.quarantined {
        let aside = aside.display();
        let text = format!(
            "the store was damaged ({why}) and is now {aside}; {rows} rows of it and of its copy are used until the \
             cloud has sent what there is"
        );
        log::error!("{text}");
        notes.push((true, "StoreDamaged", text));
    }
    if store.is_in_memory() {
        let text =
            "the disk of the node's state takes nothing: what changes is kept in memory, and lost with the power";
        notes.push((true, "StoreInMemory", text.to_owned()));
    }
    // A power cut may have taken part of a layer: what is damaged is forgotten, so that it is pulled again. And what a
    // lost store knew of images stands beside their layers.
    match settle(&mut store, &Layers::new(paths)) {
        Ok(settled) => {
            let broken = settled.broken.iter();
            broken.for_each(|image| log::error!("image {image} is damaged on disk; it will be pulled again"));
            settled
                .restored
                .iter()
                .for_each(|image| log::warn!("image {image} was not in the store; it is known again"));
        }
        Err(error) => log::error!("images could not be checked: {error}"),
    }
    let boot_id = clock.boot_id().to_string();
    if store.fact(Fact::BootId)?.as_deref() != Some(&*boot_id) {
        if store.fact(Fact::BootId)?.is_some() {
            let text = format!("Node {} has been rebooted, boot id: {boot_id}", config.node_name);
            notes.push((true, "Rebooted", text));
        }
        store.write(|writer| {
            writer.drop_statuses()?;
            writer.forget_waiting()?;
            writer.set_fact(Fact::BootId, &boot_id)
        })?;
    }
    let config = Rc::new(config);
    let manager = Manager::new(config.eviction.thresholds.clone(), config.eviction.transition);
    let (launcher, warnings) = Launcher::new(paths, Rc::clone(&config))?;
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
    if let Some(worker) = launcher.systemd_worker() {
        tasks.spawn(worker).detach();
    }
    exec::sweep(&paths.runtime_root());
    let settings = Settings {
        workers: config.runtime.parallel,
        runtime_timeout: config.runtime.request_timeout,
        ..Settings::default()
    };
    let monitor = MonitorClient::connect_or_spawn(tasks, paths.clone(), settings, senders.monitor.clone());
    let version = launcher.runtime.version();
    if version.is_none() {
        log::error!(
            "the OCI runtime {} does not run: install it, or name another as runtime.command",
            config.runtime.command.display()
        );
    }
    notes.extend(launcher.outdated.iter().map(|text| (true, "OutdatedRuntime", text.clone())));
    let host = HostFacts {
        host_ips: launcher.host_ips().to_vec(),
        recursive_read_only: launcher.recursive_read_only,
        runtime: launcher.runtime.name.clone(),
    };
    let probes = Probes(Supervisor::new(tasks.clone(), exec_probe(paths, launcher.runtimes()), tell_probe(&senders)));
    log::info!("node {} starts below {}", config.node_name, paths.root().display());
    let now = clock.now();
    let conditions = store.fact(Fact::Conditions)?;
    let doubt = Doubt::new(store.is_incomplete()?);
    let sensors = Sensors::find(Path::new("/sys"), vec![paths.state(), paths.layers(), paths.all_pod_logs()]);
    store.write(|writer| {
        notes.iter().try_for_each(|(warning, reason, message)| {
            let event = about_node(&config.node_name, *warning, reason, message, &now);
            writer.report(&Report::Event { event }).map(drop)
        })
    })?;
    // What a killed predecessor has left to be told.
    store.sync()?;
    let eviction = Eviction::new(manager, measure::separate_images(paths));
    let node_status = NodeStatus::new(version.unwrap_or_default(), conditions.as_deref(), sensors);
    let cx = Context {
        config,
        paths: paths.clone(),
        clock,
        tasks: tasks.clone(),
        senders,
        store,
        pods: Pods::default(),
        resumed: false,
        host,
        link: None,
        outgoing: Outgoing::default(),
        correlator: EventCorrelator::default(),
        look_at: None,
    };
    Ok(Node {
        cx,
        launcher,
        containers: Containers::new(monitor),
        doubt,
        poison: Poison::open(&paths.run()),
        connecting: BTreeMap::new(),
        host_ports: super::network::HostPorts::default(),
        probes,
        hooks: Hooks::default(),
        pulls: Pulls::default(),
        tokens: Tokens::default(),
        static_pods: StaticPods::default(),
        streams: Streams::default(),
        ends: Ends::default(),
        resync: StatusResync::default(),
        housekeeping: Housekeeping::default(),
        node_status,
        eviction,
        ephemeral_storage: EphemeralStorage::default(),
        image_gc: ImageGc::default(),
        backup: Backup::default(),
        reserve,
        shutdown: Shutdown::default(),
        idle: Idle::default(),
        notify: Notify::from_env(),
    })
}

/// The store on disk, or, on a disk that takes nothing, what can be read of it in memory.
fn open_store(paths: &Paths) -> Result<Opened, StoreError> {
    let path = paths.store();
    let why = match std::env::var_os(STORE_IN_MEMORY) {
        Some(_) => "it could not be written".to_owned(),
        None => match Store::open(&path) {
            Err(error) if error.is_of_disk() && !error.is_full() => error.to_string(),
            done => return done,
        },
    };
    log::error!("{why}: the node goes on with a copy of {} in memory until the disk takes it again", path.display());
    Ok(Opened { store: Store::remember(&path)?, quarantined: None })
}

/// Keeps or gives up the room for the node itself.
pub(super) fn maintain(reserve: &Reserve, paths: &Paths) {
    let Some(space) = host::disk_space(&paths.state()) else { return };
    if let Err(error) = reserve.tend(space.available_bytes, space.total_bytes) {
        log::error!("{}: {error}", paths.reserve().display());
    }
}

fn exec_probe(paths: &Paths, runtimes: &Runtimes) -> ExecProbe {
    let (paths, runtimes) = (paths.clone(), runtimes.clone());
    Rc::new(move |id, argv, timeout| {
        let runtime = runtimes.of_container(&id, &paths);
        Box::pin(async move {
            let done = exec(&runtime, &id, &argv, timeout).await.map_err(|error| error.to_string())?;
            Ok((done.code, done.output))
        })
    })
}

fn tell_probe(senders: &Senders) -> Rc<dyn Fn(crate::probe::ProbeEvent)> {
    let news = senders.news.clone();
    Rc::new(move |event| {
        // Full only if the loop is far behind; the next verdict of the probe comes within its period.
        if news.try_send(News::Probe(event)).is_err() {
            log::warn!("a probe result was dropped: the node is overloaded");
        }
    })
}

impl Node {
    /// Every pod the store knows, running or wanted. What the monitor says comes next and settles which is which.
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
            self.pod_wanted(pod, refusal);
        }
        self.doubt.keep(restored.kept);
        self.begin_in_doubt()?;
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
        };
        Ok(link::start(&self.cx.tasks, settings, self.cx.senders.link.clone()))
    }
}
