//! The node: one loop that owns all state. News comes in as events, each pod takes its turns, what is
//! to be remembered is committed before anything is done.
//!
//! | file | owns |
//! |---|---|
//! | `start` | the order of starting: store, host, monitor, pods, then the cloud |
//! | `sources` | the channels that news arrives on |
//! | `pods` | the pods in memory, and which of them need a turn |
//! | `turn` | one turn of a pod: decide, commit, execute |
//! | `admit`, `resize` | whether the node takes a pod, or gives it more |
//! | `execute` | what each step does |
//! | `network` | connecting pods, and their cgroups, when that takes another process |
//! | `objects` | what the cloud sent: into the store, then to the pods |
//! | `containers` | what the monitor said |
//! | `probes`, `hooks` | what is asked of containers that run |
//! | `doubt` | what runs on while the store may not know it |
//! | `poison` | pods at whose turns the daemon died |
//! | `pulls` | images to fetch, one at a time, and the secrets for it |
//! | `static_pods` | pods from manifest files |
//! | `tokens` | service account tokens of the pods here |
//! | `streams` | logs, exec, attach, port-forward and stats, to whoever asked |
//! | `housekeeping` | what is looked at every ten seconds, and in which order |
//! | `eviction`, `ephemeral_storage`, `image_gc` | running short: eviction, pods' disk use, unused images |
//! | `node_status` | the Node object |
//! | `events`, `event_correlator` | Kubernetes events: made, and kept few |
//! | `outgoing`, `ends` | reports on their way to the bridge; what they tell is on the medium first |
//! | `status_resync` | statuses told again: to an API that may be that of a backup, and those that were refused |
//! | `backup` | when the store is copied |
//! | `idle` | when memory is given back |
//! | `shutdown` | the machine goes down |

mod admit;
mod backup;
mod containers;
mod doubt;
mod ends;
mod ephemeral_storage;
mod event_correlator;
mod events;
mod eviction;
mod execute;
mod hooks;
mod idle;
mod image_gc;
mod network;
mod node_status;
mod objects;
mod outgoing;
mod pods;
mod poison;
mod pulls;
mod resize;
mod shutdown;
mod sources;
mod start;
mod static_pods;
mod status_resync;
mod streams;
mod tokens;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::sys::tasks::Tasks;

use crate::config::Config;
use crate::launch::Launcher;
use crate::link::LinkHandle;
use crate::monitor::client::MonitorClient;
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::pod::status::HostFacts;
use crate::probe::Supervisor;
use crate::store::{Store, StoreError};
use crate::sys::clock::Clock;
use crate::sys::notify::Notify;
use crate::sys::reserve::Reserve;

use backup::Backup;
use doubt::Doubt;
use ends::Ends;
use ephemeral_storage::EphemeralStorage;
use event_correlator::EventCorrelator;
use eviction::Eviction;
use hooks::Hooks;
use idle::Idle;
use image_gc::ImageGc;
use network::{Connecting, HostPorts};
use node_status::NodeStatus;
use outgoing::Outgoing;
use pods::Pods;
use poison::Poison;
use pulls::Pulls;
use shutdown::Shutdown;
use sources::{News, Senders, Sources};
use static_pods::StaticPods;
use status_resync::StatusResync;
use streams::Streams;
use tokens::Tokens;

pub use shutdown::MARK as SHUTDOWN_MARK;
pub use start::{STORE_IN_MEMORY, StartError, lock, run};

/// Most events taken before pods get their turns: a flood of news must not starve decisions.
const BATCH: usize = 256;

/// Whose a container id is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContainerRef {
    uid: String,
    container: String,
    attempt: u32,
}

/// All state of the running node.
pub struct Node {
    config: Rc<Config>,
    paths: Paths,
    clock: Clock,
    executor: Tasks,
    senders: Senders,
    store: Store,
    launcher: Launcher,
    monitor: MonitorClient,
    /// The monitor has said what runs; before that no pod takes a turn.
    resumed: bool,
    link: Option<LinkHandle>,
    host: HostFacts,
    pods: Pods,
    doubt: Doubt,
    backup: Backup,
    poison: Poison,
    notify: Notify,
    /// By container id.
    containers: BTreeMap<String, ContainerRef>,
    /// Ended containers that could not be removed, by id, and how often it was tried. Each waits for its next try.
    unremoved: BTreeMap<String, u32>,
    /// Pods whose network takes other processes, by uid.
    connecting: BTreeMap<String, Connecting>,
    host_ports: HostPorts,
    probes: Supervisor,
    hooks: Hooks,
    pulls: Pulls,
    outgoing: Outgoing,
    correlator: EventCorrelator,
    ends: Ends,
    node_status: NodeStatus,
    resync: StatusResync,
    eviction: Eviction,
    ephemeral_storage: EphemeralStorage,
    image_gc: ImageGc,
    shutdown: Shutdown,
    reserve: Reserve,
    streams: Streams,
    tokens: Tokens,
    idle: Idle,
    static_pods: StaticPods,
    /// Static pods whose mirror the bridge was asked to make since the link came up.
    mirrors_asked: BTreeSet<String>,
}

impl Node {
    /// Runs until asked to stop. Containers go on without it.
    ///
    /// # Errors
    /// The store fails for good: better to end, and begin again from what is durable, than to go on unremembered.
    async fn run(&mut self, sources: &Sources) -> Result<(), StoreError> {
        // Starting up is work.
        self.idle.disturb(self.mono());
        loop {
            let now = self.clock.now().mono;
            let tokens = self.renew_tokens();
            let shutdown = match self.shutdown_step(now) {
                Ok(()) => return self.leave().await,
                Err(again) => again,
            };
            if self.idle.rested(now) {
                self.rest();
            }
            let reports = match self.sync_ends(now)? {
                Ok(leave) => self.outgoing.flush(leave, self.link.as_ref(), now),
                Err(later) => Some(later),
            };
            let wake = [
                self.pods.wake_due(now),
                reports,
                self.node_status.due(),
                tokens,
                shutdown,
                self.idle.due(),
                self.notify.alive(now),
            ];
            let wake = wake.into_iter().flatten().min();
            let news =
                if self.resumed && self.pods.any_dirty() { sources.try_next() } else { sources.next(wake).await };
            let mut next = news;
            for _ in 0..BATCH {
                match next.take() {
                    Some(News::Stop) if self.stop_asked()? => {}
                    Some(News::Stop) => return Ok(()),
                    Some(news) => self.take(news)?,
                    None => break,
                }
                next = sources.try_next();
            }
            if let Some(news) = next {
                self.take(news)?;
            }
            self.refresh_node_report()?;
            self.sweep_trash();
            if self.resumed
                && let Some(uid) = self.pods.next_dirty()
            {
                self.settle(&uid)?;
                self.idle.disturb(now);
                // Lets the monitor's and the link's tasks move what this turn gave them.
                smol::future::yield_now().await;
            }
        }
    }

    /// Nothing was to be done for a while: what was needed for it goes.
    fn rest(&self) {
        self.store.release_cache();
        crate::sys::memory::trim();
        if self.pods.is_empty() {
            let monitor = self.monitor.clone();
            // One that knows of a container stays; else the next start brings another.
            self.executor.spawn(async move { drop(monitor.shutdown_if_idle().await) }).detach();
        }
    }

    fn take(&mut self, news: News) -> Result<(), StoreError> {
        match news {
            News::Link(event) => self.take_link(event),
            News::Monitor(event) => self.take_monitor(event),
            News::StartRefused { id, failure, message } => self.start_failed(&id, failure, &message),
            News::Looked { uid, result } => {
                self.looked(&uid, result);
                Ok(())
            }
            News::Deleted { id, result } => self.deleted(&id, result),
            News::Cleared { uid, result } => self.cleared(&uid, result),
            News::RulesReplaced(result) => self.rules_replaced(result),
            News::PluginsDone { uid, result } => self.plugins_done(&uid, result),
            News::CgroupDone { uid, result } => self.cgroup_done(&uid, result),
            News::Resized { uid, resized, done } => {
                self.resized(&uid, resized, done);
                Ok(())
            }
            News::Probe(event) => self.take_probe(event),
            News::HookDone(call, done) => self.hook_done(call, done),
            News::Pulled { job, result } => self.pulled(job, result),
            News::Walked(result) => self.walked(result),
            News::Collected(result) => self.collected(result),
            News::ManifestsChanged => self.scan_manifests(),
            News::Woken | News::Stop => Ok(()),
        }
    }

    fn mono(&self) -> Mono {
        self.clock.now().mono
    }
}
