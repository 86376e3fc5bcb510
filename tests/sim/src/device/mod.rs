//! A device: the real store on a real file, the real intake, records and reconcile; its runtime is only a set of
//! containers. Models what is durable and what a crash or a power cut loses, and checks the invariants at every commit.

mod check;
mod daemon;
mod disk;
mod helper;
mod link;
mod turn;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::message::Position;
use edge_runtime::intake::{self, Recorded};
use edge_runtime::store::{Fact, Store, StoreError};
use jiff::Timestamp;
use sampan_pod::clock::{Mono, Now};
use sampan_pod::event::PodEvent;

pub use daemon::Daemon;
use daemon::Entry;
use helper::{Helper, Sensors};

/// Point at which the daemon dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Before the commit of received changes.
    BeforeCommit,
    /// After it, before any message about it.
    AfterCommit,
    /// After a pod's turn is committed, before its steps are executed.
    BeforeSteps,
    /// After the first of its steps.
    AfterStep,
}

pub struct Device {
    dir: tempfile::TempDir,
    /// Copies of the store: of the last synced commit, and one that an administrator made earlier.
    synced: bool,
    image: bool,
    /// `None` while the store is closed, because the daemon is down.
    store: Option<Store>,
    pub daemon: Option<Daemon>,
    /// Running containers by id, with the pod's uid.
    pub runtime: BTreeMap<String, String>,
    /// Every container id the runtime has seen since boot.
    known: HashSet<String>,
    boot: u64,
    booted: Duration,
    /// Error of its clock in seconds: it was never set, or jumped.
    pub wall_s: i64,
    /// Whether its configuration enables Services.
    pub services: bool,
    /// Whether its configuration enables devices.
    pub devices: bool,
    helper: Option<Helper>,
    /// Helpers started so far.
    helpers: u64,
    sensors: Sensors,
    /// Uids whose tombstone was committed.
    removed: HashSet<String>,
    newest: check::Newest,
    versions: u64,
    /// Newest status put into the outbox, per pod uid.
    pub reported: HashMap<String, u64>,
    /// Containers started so far.
    pub starts: usize,
    /// Deepest outbox seen.
    pub most_rows: usize,
}

impl Device {
    pub fn new(power_cuts: bool) -> Self {
        let shm = std::path::Path::new("/dev/shm");
        let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        Self {
            dir: dir.expect("a folder for the store"),
            synced: power_cuts,
            image: false,
            store: None,
            daemon: None,
            runtime: BTreeMap::new(),
            known: HashSet::new(),
            boot: 1,
            booted: Duration::ZERO,
            wall_s: 0,
            services: true,
            devices: false,
            helper: None,
            helpers: 0,
            sensors: Sensors::default(),
            removed: HashSet::new(),
            newest: HashMap::new(),
            versions: 0,
            reported: HashMap::new(),
            starts: 0,
            most_rows: 0,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn now(&self, now: Duration) -> Now {
        let wall = Timestamp::from_second(1_700_000_000 + self.wall_s).expect("a time");
        Now { wall, mono: Mono::from_duration(now.saturating_sub(self.booted)), boot_id: Rc::from(self.boot_id()) }
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("an open store")
    }

    /// Starts the daemon, as `node::start` does. Fails while the disk is full.
    pub fn start(&mut self, now: Duration) -> Result<(), StoreError> {
        let mut store = Store::open(&self.file("store"))?.store;
        let boot_id = self.boot_id();
        if store.fact(Fact::BootId)?.as_deref() != Some(&*boot_id) {
            store.write(|writer| {
                writer.drop_statuses()?;
                writer.forget_waiting()?;
                writer.set_fact(Fact::BootId, &boot_id)
            })?;
        }
        let restored = intake::restore(&store)?;
        self.store = Some(store);
        let mut daemon = Daemon::default();
        let clock = self.now(now);
        for Recorded { pod, record, gone } in restored.recorded {
            let uid = record.uid.clone();
            let ids = record.containers.values().filter_map(|container| container.state.live_id());
            let live = ids.filter(|id| self.runtime.contains_key(*id)).map(|id| (id.to_owned(), 1)).collect();
            let mut entry = Entry::new(Rc::new(pod), record);
            if gone {
                entry.tell(PodEvent::ObjectGone { grace_s: 5 }, &clock);
            }
            entry.tell(PodEvent::Resumed { live, sandbox_exists: true }, &clock);
            daemon.pods.insert(uid, entry);
        }
        // The monitor ends containers without an owner.
        self.runtime.retain(|_, uid| daemon.pods.contains_key(uid));
        for (pod, _) in restored.wanted {
            daemon.wanted(pod, &clock);
        }
        assert!(restored.lost.is_empty(), "{:?}", restored.lost);
        self.daemon = Some(daemon);
        Ok(())
    }

    /// The daemon dies. Containers run on.
    pub fn crash(&mut self, now: Duration) {
        self.orphan_helper(now);
        self.daemon = None;
        self.store = None;
    }

    /// Uids of pods with running containers.
    pub fn running(&self) -> HashSet<String> {
        self.runtime.values().cloned().collect()
    }

    pub fn position(&self) -> Option<Position> {
        position(self.store())
    }
}

fn position(store: &Store) -> Option<Position> {
    let stream = store.fact(Fact::Stream).expect("reads");
    let seq = store.fact(Fact::LastSequence).expect("reads").and_then(|seq| seq.parse().ok());
    stream.zip(seq).map(|(stream, seq)| Position { stream, seq })
}
