//! A device: the real store on a real file, the real intake, records and reconcile, and a runtime that is only a set of
//! containers. What is durable, what a crash or a power cut loses, and what must hold at every commit.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::message::{ObjectKey, Position, Report};
use edge_runtime::intake::{self, Applied, Recorded};
use edge_runtime::pod::clock::{Mono, Now};
use edge_runtime::pod::event::{Exit, PodEvent};
use edge_runtime::pod::reconcile::{World, reconcile};
use edge_runtime::pod::record::{PodRecord, PodSource};
use edge_runtime::pod::status::{HostFacts, publish};
use edge_runtime::pod::step::Step;
use edge_runtime::pod::transition;
use edge_runtime::store::{Fact, Store, StoreError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::api::{Api, NODE};

/// Where the daemon dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Before the commit of what came.
    BeforeCommit,
    /// After it, before anybody hears of it.
    AfterCommit,
    /// After a pod's turn is committed, before its steps are executed.
    BeforeSteps,
    /// After the first of its steps.
    AfterStep,
}

struct Entry {
    pod: Rc<Pod>,
    record: PodRecord,
    reported: Value,
    wake: Option<Mono>,
    dirty: bool,
    unsaved: bool,
}

/// The process. Dies with everything in it.
#[derive(Default)]
pub struct Daemon {
    pub session: Option<EdgeSession>,
    /// Received, not committed.
    pub inbox: VecDeque<Change>,
    /// Numbers committed on this connection.
    pub committed: HashSet<u64>,
    pods: BTreeMap<String, Entry>,
}

pub struct Device {
    dir: tempfile::TempDir,
    /// Copies of the store: as of the last synced commit, and one that somebody has made some time.
    synced: bool,
    image: bool,
    /// None while the store is closed, because the daemon is down.
    store: Option<Store>,
    pub daemon: Option<Daemon>,
    /// Container ids that run, with the pod's uid.
    pub runtime: BTreeMap<String, String>,
    /// Every container id the runtime has seen since boot.
    known: HashSet<String>,
    boot: u64,
    booted: Duration,
    /// Off by this much: a clock that was never set, or jumped.
    pub wall_s: i64,
    /// Uids whose tombstone was committed.
    removed: HashSet<String>,
    newest: HashMap<String, i64>,
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
        // The monitor ends what nobody owns.
        self.runtime.retain(|_, uid| daemon.pods.contains_key(uid));
        for (pod, _) in restored.wanted {
            daemon.wanted(pod, &clock);
        }
        assert!(restored.lost.is_empty(), "{:?}", restored.lost);
        self.daemon = Some(daemon);
        Ok(())
    }

    /// The daemon dies. Containers run on.
    pub fn crash(&mut self) {
        self.daemon = None;
        self.store = None;
    }

    /// The machine loses its power: what was not synced is lost, nothing runs.
    pub fn power_cut(&mut self, now: Duration) {
        self.crash();
        if self.synced {
            self.put_back("synced");
        }
        self.reboot(now);
    }

    fn reboot(&mut self, now: Duration) {
        self.boot += 1;
        self.booted = now;
        self.runtime.clear();
        self.known.clear();
    }

    /// Somebody copies the disk.
    pub fn take_image(&mut self) {
        if self.store.is_some() {
            self.copy_to("image");
            self.image = true;
        }
    }

    /// Somebody writes that copy back: all that was learned since is forgotten.
    pub fn restore_image(&mut self, now: Duration) -> bool {
        if !self.image {
            return false;
        }
        self.crash();
        self.put_back("image");
        self.reboot(now);
        self.copy_to("synced");
        self.removed.clear();
        self.newest.clear();
        true
    }

    /// Somebody installs the device anew.
    pub fn reinstall(&mut self, now: Duration) {
        self.crash();
        for end in ["", "-wal", "-shm"] {
            for name in ["store", "synced"] {
                let _ = std::fs::remove_file(self.file(&format!("{name}{end}")));
            }
        }
        self.reboot(now);
        self.removed.clear();
        self.newest.clear();
    }

    /// The disk takes nothing more, or does again.
    pub fn disk_full(&mut self, full: bool) {
        if let Some(store) = &self.store {
            store.limit(full).expect("a pragma");
        }
    }

    fn copy_to(&self, name: &str) {
        for end in ["", "-wal"] {
            let to = self.file(&format!("{name}{end}"));
            let _ = std::fs::remove_file(&to);
            let _ = std::fs::copy(self.file(&format!("store{end}")), to);
        }
    }

    fn put_back(&self, name: &str) {
        for end in ["", "-wal", "-shm"] {
            let to = self.file(&format!("store{end}"));
            let _ = std::fs::remove_file(&to);
            let _ = std::fs::copy(self.file(&format!("{name}{end}")), to);
        }
    }

    pub fn connect(&mut self, now: Duration, old_build: bool) {
        let boot = self.boot_id();
        let (Some(daemon), Some(store)) = (&mut self.daemon, &self.store) else { return };
        let mut facts = EdgeFacts::new(NODE, boot);
        facts.compress = !old_build;
        facts.held = store.held().expect("reads");
        facts.cluster = store.fact(Fact::Cluster).expect("reads");
        facts.position = position(store);
        daemon.session = Some(EdgeSession::new(facts, now));
        daemon.inbox.clear();
        daemon.committed.clear();
    }

    pub fn lose_connection(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.session = None;
            daemon.inbox.clear();
        }
    }

    /// Takes the session's events. A store that fails ends the daemon.
    pub fn drain(&mut self) -> Result<(), StoreError> {
        let (Some(daemon), Some(store)) = (&mut self.daemon, &mut self.store) else { return Ok(()) };
        let Some(session) = &mut daemon.session else { return Ok(()) };
        let mut more = false;
        while let Some(event) = session.poll_event() {
            match event {
                EdgeEvent::Welcome(welcome) => {
                    store.write(|writer| writer.set_fact(Fact::Cluster, &welcome.cluster))?;
                    more = true;
                }
                EdgeEvent::Change(change) => daemon.inbox.push_back(change),
                EdgeEvent::UpAcked(id) | EdgeEvent::UpRefused(id, _) => {
                    store.write(|writer| writer.acknowledged(id))?;
                    more = true;
                }
                EdgeEvent::Token { .. } | EdgeEvent::Renewed(_) | EdgeEvent::Stream(_) => {}
            }
        }
        if more {
            self.offer()?;
        }
        Ok(())
    }

    /// Offers the outbox to the session, which takes what its window has room for.
    fn offer(&mut self) -> Result<(), StoreError> {
        let (Some(daemon), Some(store)) = (&mut self.daemon, &self.store) else { return Ok(()) };
        let Some(session) = daemon.session.as_mut().filter(|session| session.is_welcome()) else { return Ok(()) };
        let rows = store.outbox()?;
        self.most_rows = self.most_rows.max(rows.len());
        for row in rows {
            if session.up(row.id, row.report).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// One durable commit of the first `count` changes, the acknowledgement, the effects; or a death on the way.
    pub fn commit(&mut self, count: usize, crash: Option<Crash>, api: &Api, now: Duration) -> Result<(), StoreError> {
        let clock = self.now(now);
        if crash == Some(Crash::BeforeCommit) {
            self.crash();
            return Ok(());
        }
        let (Some(daemon), Some(store)) = (&mut self.daemon, &mut self.store) else { return Ok(()) };
        let Some(session) = &mut daemon.session else { return Ok(()) };
        let changes: Vec<Change> = daemon.inbox.drain(..count).collect();
        check(&changes, store, api, &mut self.newest, &self.removed);
        changes.iter().for_each(show);
        let numbers: Vec<u64> = changes.iter().map(Change::seq).collect();
        let pods = &daemon.pods;
        let manifest_of = |uid: &str| serde_json::to_value(&*pods.get(uid)?.pod).ok();
        let Some(batch) = intake::commit(store, session.stream(), changes, &manifest_of)? else { return Ok(()) };
        daemon.committed.extend(numbers);
        for applied in &batch.applied {
            if let Applied::Gone(key, uid) = applied
                && key.kind == "Pod"
            {
                self.removed.insert(uid.clone());
            }
        }
        if self.synced {
            self.copy_to("synced");
        }
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if crash == Some(Crash::AfterCommit) {
            self.crash();
            return Ok(());
        }
        let Some(session) = &mut daemon.session else { return Ok(()) };
        for (digest, reason) in &batch.refused {
            session.nack(&digest.key, &digest.uid, reason.clone());
        }
        session.committed(batch.seq);
        let more = !batch.reports.is_empty();
        for applied in batch.applied {
            match applied {
                Applied::Pod(pod, _) => daemon.wanted(*pod, &clock),
                Applied::Gone(key, uid) if key.kind == "Pod" => daemon.gone(&uid, &clock),
                Applied::Other(_) | Applied::Gone(..) => {}
            }
        }
        if more { self.offer() } else { Ok(()) }
    }

    /// One turn of one pod that needs it. False if none does.
    pub fn turn(&mut self, crash: Option<Crash>, now: Duration) -> Result<bool, StoreError> {
        let clock = self.now(now);
        let (Some(daemon), Some(store)) = (&mut self.daemon, &mut self.store) else { return Ok(false) };
        let due = |entry: &Entry| entry.dirty || entry.wake.is_some_and(|at| at <= clock.mono);
        let Some((uid, entry)) = daemon.pods.iter_mut().find(|(_, entry)| due(entry)) else { return Ok(false) };
        let uid = uid.clone();
        entry.dirty = false;
        entry.wake = None;
        let world = World { image: &|image| Some(format!("sha256:{image}")), admit: &|_| None, resize: &|_| None };
        let plan = reconcile(&entry.pod, entry.record.clone(), &world, &clock);
        let (record, status) = publish(&entry.pod, plan.record, &HostFacts::default(), &clock);
        let mut reports = Vec::new();
        let status = serde_json::to_value(&status).expect("a status is JSON");
        let (namespace, name) = (record.namespace.clone(), record.name.clone());
        let object_gone = record.deletion.as_ref().is_some_and(|deletion| deletion.object_gone);
        if entry.reported != status && !object_gone {
            entry.reported = status.clone();
            self.versions += 1;
            let mut status = status;
            status["simVersion"] = self.versions.into();
            self.reported.insert(uid.clone(), self.versions);
            reports.push(Report::PodStatus {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.clone(),
                status,
            });
        }
        if plan.steps.contains(&Step::ReportGone) && !object_gone {
            reports.push(Report::PodGone { namespace, name, uid: uid.clone() });
        }
        let forget = plan.steps.contains(&Step::Forget);
        if entry.unsaved || entry.record != record || forget || !reports.is_empty() {
            store.write(|writer| {
                if forget {
                    writer.forget_pod(&uid)?
                } else {
                    writer.put_pod(&record)?
                }
                reports.iter().try_for_each(|report| writer.report(report).map(drop))
            })?;
        }
        entry.record = record;
        entry.unsaved = false;
        if !reports.is_empty() {
            self.offer()?;
        }
        if crash == Some(Crash::BeforeSteps) {
            self.crash();
            return Ok(true);
        }
        for step in plan.steps {
            self.execute(&uid, step, &clock);
            if crash == Some(Crash::AfterStep) {
                self.crash();
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn execute(&mut self, uid: &str, step: Step, clock: &Now) {
        let Some(daemon) = &mut self.daemon else { return };
        let Some(entry) = daemon.pods.get_mut(uid) else { return };
        match step {
            Step::PrepareSandbox => entry.tell(PodEvent::SandboxReady { ips: Vec::new() }, clock),
            Step::EnsureImage { container, reference, .. } => {
                let image_id = format!("sha256:{reference}");
                entry.tell(PodEvent::ImageReady { container, image_id }, clock);
            }
            Step::Start { container, id, .. } => {
                assert!(!self.removed.contains(uid), "pod {uid} was deleted, and is started");
                assert!(self.known.insert(id.clone()), "container {id} of pod {uid} is started twice");
                self.starts += 1;
                self.runtime.insert(id.clone(), uid.to_owned());
                entry.tell(PodEvent::Started { container, id, pid: 1, started_at: clock.wall }, clock);
            }
            Step::Kill { container, id, .. } => {
                self.runtime.remove(&id);
                let exit = Exit {
                    code: 0,
                    signal: None,
                    oom_killed: false,
                    unknown: false,
                    finished_at: clock.wall,
                    message: String::new(),
                };
                entry.tell(PodEvent::Exited { container, id, exit }, clock);
            }
            Step::RemoveContainer { container, attempt, id } => {
                self.runtime.remove(&id);
                entry.tell(PodEvent::Removed { container, attempt }, clock);
            }
            Step::Teardown => entry.tell(PodEvent::TornDown, clock),
            Step::Forget => drop(daemon.pods.remove(uid)),
            Step::WakeAt(at) => entry.wake = Some(at),
            Step::ReportGone | Step::Event(_) | Step::RunHook { .. } | Step::Resize { .. } => {}
        }
    }

    /// Pods that run something.
    pub fn running(&self) -> HashSet<String> {
        self.runtime.values().cloned().collect()
    }

    pub fn position(&self) -> Option<Position> {
        position(self.store())
    }
}

impl Entry {
    fn new(pod: Rc<Pod>, record: PodRecord) -> Self {
        Self { pod, record, reported: Value::Null, wake: None, dirty: true, unsaved: true }
    }

    fn tell(&mut self, event: PodEvent, now: &Now) {
        self.record = transition::apply(self.record.clone(), event, now);
        (self.dirty, self.unsaved) = (true, true);
    }
}

impl Daemon {
    /// As `Node::pod_wanted`.
    fn wanted(&mut self, pod: Pod, now: &Now) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let deleting = pod.metadata.deletion_timestamp.is_some();
        let pod = Rc::new(pod);
        if let Some(entry) = self.pods.get_mut(&uid) {
            (entry.pod, entry.dirty) = (pod, true);
        } else {
            let before = self.pods.values_mut().find(|entry| entry.record.name == name);
            before.into_iter().for_each(|entry| entry.tell(PodEvent::ObjectGone { grace_s: 5 }, now));
            let record = PodRecord::new(&uid, "ns", &name, PodSource::Api, now);
            self.pods.insert(uid.clone(), Entry::new(pod, record));
        }
        if let Some(entry) = self.pods.get_mut(&uid).filter(|_| deleting) {
            entry.tell(PodEvent::DeletionRequested { grace_s: 5 }, now);
        }
    }

    fn gone(&mut self, uid: &str, now: &Now) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.tell(PodEvent::ObjectGone { grace_s: 5 }, now);
        }
    }
}

fn position(store: &Store) -> Option<Position> {
    let stream = store.fact(Fact::Stream).expect("reads");
    let seq = store.fact(Fact::LastSequence).expect("reads").and_then(|seq| seq.parse().ok());
    stream.zip(seq).map(|(stream, seq)| Position { stream, seq })
}

fn show(change: &Change) {
    crate::trace(|| match change {
        Change::Put { object, seq, sync } => {
            let name = format!("{} {}", object.digest.key.name, object.digest.uid);
            let poison = object.body["spec"]["containers"].is_string();
            let generation = &object.body["metadata"]["generation"];
            format!("device: put {seq}, sync {sync}, {name}, generation {generation}, poison {poison}")
        }
        other => format!("device: {other:?}"),
    });
}

/// What must hold of changes about to be committed, whatever happened on the way.
fn check(changes: &[Change], store: &Store, api: &Api, newest: &mut HashMap<String, i64>, removed: &HashSet<String>) {
    let mut held: HashMap<ObjectKey, String> =
        store.held().expect("reads").into_iter().map(|o| (o.key, o.uid)).collect();
    let delete = |key: &ObjectKey, uid: &String, held: &mut HashMap<ObjectKey, String>| {
        // G12: only the API deletes pods. A ConfigMap may go for a moment, between the pods that name it.
        assert!(key.kind != "Pod" || api.deleted.contains(uid), "{key:?} {uid} is deleted by no one");
        if held.get(key) == Some(uid) {
            held.remove(key);
        }
    };
    for change in changes {
        match change {
            Change::Put { object, .. } => {
                let (key, uid) = (&object.digest.key, &object.digest.uid);
                // G3: for one uid nothing older after something newer.
                let generation = object.body["metadata"]["generation"].as_i64();
                let version = object.body["data"]["version"].as_str().and_then(|text| text.parse().ok());
                let version = generation.or(version).expect("every body has one");
                let known = newest.entry(uid.clone()).or_default();
                assert!(version >= *known, "{key:?} {uid}: {version} after {known}");
                *known = version;
                assert!(!removed.contains(uid), "{key:?} {uid}: a deleted pod comes back");
                if let Some(old) = held.get(key) {
                    assert_eq!(old, uid, "{key:?}: replaced without a delete");
                }
                held.insert(key.clone(), uid.clone());
            }
            Change::Delete { key, uid, .. } => delete(key, uid, &mut held),
            Change::SyncComplete { absent, .. } => absent.iter().for_each(|o| delete(&o.key, &o.uid, &mut held)),
        }
    }
}
