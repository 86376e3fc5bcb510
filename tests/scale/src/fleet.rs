//! State and counters that the nodes of a swarm share. One thread: plain cells.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// Byte counts below TLS.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: Cell<u64>,
    pub(crate) received: Cell<u64>,
}

impl Counters {
    pub(crate) fn total(&self) -> (u64, u64) {
        (self.sent.get(), self.received.get())
    }
}

/// Times of the events of one pod.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) created: Option<Instant>,
    pub(crate) arrived: Option<Instant>,
    pub(crate) reported: Option<Instant>,
    pub(crate) gone: bool,
}

/// All nodes.
pub(crate) struct Fleet {
    pub(crate) bridges: Vec<SocketAddr>,
    pub(crate) counters: std::rc::Rc<Counters>,
    pub(crate) ramp: Semaphore,
    connected: RefCell<Vec<bool>>,
    synced: Cell<usize>,
    registered: Cell<usize>,
    stuck: Cell<usize>,
    lost: Cell<u64>,
    refused: Cell<u64>,
    failures: RefCell<HashMap<String, u64>>,
    /// Times by name of the pod.
    pods: RefCell<HashMap<String, Times>>,
    names: RefCell<HashMap<String, String>>,
    /// Revision of the shared object at each node.
    held: RefCell<Vec<u32>>,
    /// Interval of a new value of each device; `None` without devices.
    pub(crate) devices_report: Option<Duration>,
    devices: Cell<usize>,
    device_reports: Cell<u64>,
    silence: Cell<Duration>,
    /// Nodes that are offline and must not connect yet.
    away: RefCell<HashSet<usize>>,
    /// Whether the nodes start at different bridges.
    pub(crate) spread: bool,
    pub(crate) jobs: Jobs,
    seed: Cell<u64>,
}

/// Work of the nodes for a job.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Average duration of the work.
    pub(crate) works: Cell<Duration>,
    /// Percentage of the nodes at which the work fails.
    pub(crate) fails: Cell<usize>,
    /// Number of orders that each node received, by job.
    given: RefCell<HashMap<(usize, String), u32>>,
    under_way: Cell<usize>,
    most: Cell<usize>,
    ended: Cell<usize>,
}

impl Jobs {
    /// Whether the work fails at this node.
    pub(crate) fn fails_at(&self, index: usize) -> bool {
        index * 7 % 100 < self.fails.get()
    }

    /// Counts a new order for a node.
    pub(crate) fn given(&self, index: usize, job: &str) {
        *self.given.borrow_mut().entry((index, job.to_owned())).or_default() += 1;
    }

    pub(crate) fn begun(&self) {
        self.under_way.set(self.under_way.get() + 1);
        self.most.set(self.most.get().max(self.under_way.get()));
    }

    /// The node has finished its work, but its result is not counted yet.
    pub(crate) fn ended(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.ended.set(self.ended.get() + 1);
    }

    pub(crate) fn count_ended(&self) -> usize {
        self.ended.get()
    }

    /// Maximum number of nodes that worked at the same time.
    pub(crate) fn most(&self) -> usize {
        self.most.get()
    }

    /// Nodes that received an order of this job, and the maximum number for one node.
    pub(crate) fn orders(&self, job: &str) -> (HashSet<usize>, u32) {
        let given = self.given.borrow();
        let of_job = given.iter().filter(|((_, of), _)| of == job);
        of_job.fold((HashSet::new(), 0), |(mut nodes, most), ((index, _), times)| {
            nodes.insert(*index);
            (nodes, most.max(*times))
        })
    }
}

impl Fleet {
    pub(crate) fn new(bridges: Vec<SocketAddr>, nodes: usize, ramp: usize, devices_report: Option<Duration>) -> Self {
        Self {
            bridges,
            counters: std::rc::Rc::default(),
            ramp: Semaphore::new(ramp),
            connected: RefCell::new(vec![false; nodes]),
            synced: Cell::new(0),
            registered: Cell::new(0),
            stuck: Cell::new(0),
            lost: Cell::new(0),
            refused: Cell::new(0),
            failures: RefCell::default(),
            pods: RefCell::default(),
            names: RefCell::default(),
            held: RefCell::new(vec![0; nodes]),
            devices_report,
            devices: Cell::new(0),
            device_reports: Cell::new(0),
            silence: Cell::default(),
            away: RefCell::default(),
            spread: false,
            jobs: Jobs::default(),
            seed: Cell::new(0x2545_f491_4f6c_dd1d),
        }
    }

    /// xorshift: for an even spread, not for secrets.
    pub(crate) fn random(&self) -> u64 {
        let mut x = self.seed.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.seed.set(x);
        x
    }

    pub(crate) fn joined(&self, index: usize) {
        self.connected.borrow_mut()[index] = true;
    }

    pub(crate) fn left(&self, index: usize, why: Option<anyhow::Error>) {
        self.connected.borrow_mut()[index] = false;
        self.lost.set(self.lost.get() + 1);
        if let Some(why) = why {
            self.failed(&why);
        }
    }

    pub(crate) fn failed(&self, error: &anyhow::Error) {
        let text: String = error.to_string().chars().take(100).collect();
        *self.failures.borrow_mut().entry(text).or_default() += 1;
    }

    pub(crate) fn synced(&self, _: usize) {
        self.synced.set(self.synced.get() + 1);
    }

    pub(crate) fn registered(&self, _: usize) {
        self.registered.set(self.registered.get() + 1);
    }

    pub(crate) fn refused(&self, reason: &str) {
        self.refused.set(self.refused.get() + 1);
        *self.failures.borrow_mut().entry(format!("report refused: {reason}")).or_default() += 1;
    }

    /// Counts reports that the bridge refused; there should be none.
    pub(crate) fn count_refused(&self) -> u64 {
        self.refused.get()
    }

    /// Failures of all kinds since the last call.
    pub(crate) fn take_failures(&self) -> Vec<(String, u64)> {
        self.failures.take().into_iter().collect()
    }

    pub(crate) fn count_connected(&self) -> usize {
        self.connected.borrow().iter().filter(|connected| **connected).count()
    }

    pub(crate) fn count_synced(&self) -> usize {
        self.synced.get()
    }

    pub(crate) fn count_registered(&self) -> usize {
        self.registered.get()
    }

    pub(crate) fn count_lost(&self) -> u64 {
        self.lost.get()
    }

    /// Notes the revision of the shared object at this node.
    pub(crate) fn holds(&self, index: usize, revision: u32) {
        self.held.borrow_mut()[index] = revision;
    }

    pub(crate) fn count_holders(&self, revision: u32) -> usize {
        self.held.borrow().iter().filter(|held| **held == revision).count()
    }

    /// Counts a device that is new or newer at a node.
    pub(crate) fn device_arrived(&self) {
        self.devices.set(self.devices.get() + 1);
    }

    pub(crate) fn count_devices(&self) -> usize {
        self.devices.get()
    }

    /// Counts a measurement of a device that is in the API.
    pub(crate) fn device_told(&self) {
        self.device_reports.set(self.device_reports.get() + 1);
    }

    pub(crate) fn count_device_reports(&self) -> u64 {
        self.device_reports.get()
    }

    /// Records how long a node received nothing before a message arrived, or before it gave up.
    pub(crate) fn heard_after(&self, silence: Duration) {
        self.silence.set(self.silence.get().max(silence));
    }

    pub(crate) fn forget_silence(&self) {
        self.silence.set(Duration::ZERO);
    }

    pub(crate) fn longest_silence(&self) -> Duration {
        self.silence.get()
    }

    /// Makes the first `nodes` nodes stop reading.
    pub(crate) fn stick(&self, nodes: usize) {
        self.stuck.set(nodes);
    }

    pub(crate) fn is_stuck(&self, index: usize) -> bool {
        index < self.stuck.get()
    }

    /// Takes these nodes offline, or lets them reconnect.
    pub(crate) fn set_away(&self, nodes: impl IntoIterator<Item = usize>, away: bool) {
        let mut all = self.away.borrow_mut();
        for node in nodes {
            if away {
                all.insert(node)
            } else {
                all.remove(&node)
            };
        }
    }

    pub(crate) fn is_away(&self, index: usize) -> bool {
        self.away.borrow().contains(&index)
    }

    pub(crate) fn created(&self, pod: &str, at: Instant) {
        self.pods.borrow_mut().entry(pod.to_owned()).or_default().created = Some(at);
    }

    pub(crate) fn arrived(&self, pod: &str, uid: &str) {
        self.names.borrow_mut().insert(uid.to_owned(), pod.to_owned());
        let mut pods = self.pods.borrow_mut();
        pods.entry(pod.to_owned()).or_default().arrived.get_or_insert_with(Instant::now);
    }

    pub(crate) fn reported(&self, uid: &str) {
        if let Some(pod) = self.names.borrow().get(uid) {
            let mut pods = self.pods.borrow_mut();
            pods.entry(pod.clone()).or_default().reported.get_or_insert_with(Instant::now);
        }
    }

    /// Notes that a node was told to stop a pod.
    pub(crate) fn gone(&self, pod: &str) {
        self.pods.borrow_mut().entry(pod.to_owned()).or_default().gone = true;
    }

    /// Number of pods with this prefix that have arrived at nodes, and number of those that were reported.
    pub(crate) fn count_pods(&self, prefix: &str) -> (usize, usize) {
        let pods = self.pods.borrow();
        let ours = pods.iter().filter(|(name, _)| name.starts_with(prefix));
        ours.fold((0, 0), |(arrived, reported), (_, times)| {
            (arrived + usize::from(times.arrived.is_some()), reported + usize::from(times.reported.is_some()))
        })
    }

    /// Number of those pods that nodes were told to stop.
    pub(crate) fn count_gone(&self, prefix: &str) -> usize {
        self.pods.borrow().iter().filter(|(name, times)| name.starts_with(prefix) && times.gone).count()
    }

    pub(crate) fn times(&self, pod: &str) -> Times {
        self.pods.borrow().get(pod).copied().unwrap_or_default()
    }
}
