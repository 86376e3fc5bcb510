//! The node: one loop that owns all state. Events come in as news; each pod takes turns, and a turn commits its
//! decisions to the store before it acts on them.
//!
//! | file | owns |
//! |---|---|
//! | `start` | the order of starting: store, host, monitor, pods, then the cloud |
//! | `sources` | the channels that news arrives on |
//! | `pods` | the pods in memory, and which of them need a turn |
//! | `turn` | one turn of a pod: decide, commit, execute |
//! | `admit`, `resize` | whether the node accepts a pod, or an increase of its resources |
//! | `execute` | what each step does |
//! | `network` | connecting pods, and their cgroups, as far as that needs another process |
//! | `objects` | objects from the cloud: into the store, then to the pods |
//! | `neighbours` | nodes of this LAN, and the routes to their pods |
//! | `services` | the endpoints of Services on this node, and when to update the kernel |
//! | `kernel_rules` | reaction to changes of the kernel's rules by other programs |
//! | `policies` | the pods that NetworkPolicies select here, and when to update the kernel |
//! | `devices` | the helper for devices: messages to it and from it |
//! | `orders` | fleet jobs: their helper, and their progress |
//! | `dns` | the helper that answers pods' DNS queries |
//! | `monitor_events` | events from the monitor |
//! | `containers` | owners of container ids, and requests to the monitor |
//! | `context` | shared by all parts: store, pods, clock, tasks |
//! | `images` | the local images |
//! | `probes`, `hooks` | probes and lifecycle hooks of running containers |
//! | `recovery` | containers that run on although the store may not know them |
//! | `crash_loop` | pods whose turns have killed the daemon |
//! | `pulls` | images to pull, one at a time, and their pull secrets |
//! | `static_pods` | pods from manifest files |
//! | `tokens` | service account tokens of the pods on this node |
//! | `streams` | logs, exec, attach, port-forward and stats, to clients |
//! | `housekeeping` | the checks of every ten seconds, and their order |
//! | `metrics` | state of the daemon and its pods, on request |
//! | `host_watch` | the clock, and file descriptors |
//! | `eviction`, `ephemeral_storage`, `image_gc` | shortages: eviction, pods' disk use, unused images |
//! | `node_status` | the Node object |
//! | `events`, `event_correlator` | Kubernetes events: creation, and limits |
//! | `event_log` | the last events, for users of this machine |
//! | `outgoing`, `exit_sync` | reports to the bridge; a report is sent after its data is on the medium |
//! | `acknowledged` | reports that the bridge has: deleted together with the next commit |
//! | `status_resync` | statuses sent again: to an API that may be restored from a backup, and after a refusal |
//! | `backup` | when to copy the store |
//! | `idle` | when to give memory back |
//! | `shutdown` | shutdown of the machine |

mod acknowledged;
mod admit;
mod backup;
#[cfg(test)]
mod bench;
mod containers;
mod context;
mod crash_loop;
mod device_messages;
mod devices;
mod dns;
mod ephemeral_storage;
mod event_correlator;
mod event_log;
mod events;
mod eviction;
mod execute;
mod exit_sync;
mod hooks;
mod host_watch;
mod housekeeping;
mod idle;
mod image_gc;
mod images;
mod kernel_rules;
mod metrics;
mod monitor_events;
mod neighbours;
mod network;
mod node_status;
mod notify;
mod objects;
mod orders;
mod outgoing;
mod pods;
mod policies;
mod probes;
mod pulls;
mod recovery;
mod resize;
mod services;
mod shutdown;
mod sources;
mod start;
mod static_pods;
mod status_resync;
mod streams;
mod tokens;
mod turn;

use std::time::Instant;

use crate::launch::Launch;
use crate::store::StoreError;
use crate::sys::reserve::Reserve;
use crate::sys::vec_map::VecMap;
use notify::Notify;

use backup::Backup;
use containers::Containers;
use context::Context;
use crash_loop::CrashLoop;
use devices::Devices;
use dns::Dns;
use ephemeral_storage::EphemeralStorage;
use eviction::Eviction;
use exit_sync::ExitSync;
use hooks::Hooks;
use host_watch::HostWatch;
use idle::Idle;
use image_gc::ImageGc;
use kernel_rules::state::KernelRules;
use neighbours::state::Neighbours;
use network::connecting::Connecting;
use network::host_ports::HostPorts;
use node_status::NodeStatus;
use orders::Orders;
use policies::state::Policies;
use probes::Probes;
use pulls::Pulls;
use services::Services;
use shutdown::state::Shutdown;
use sources::{News, Sources};
use static_pods::StaticPods;
use status_resync::StatusResync;
use streams::Streams;
use tokens::Tokens;

pub use shutdown::MARK as SHUTDOWN_MARK;
pub use start::{STORE_IN_MEMORY, StartError, lock, run};

/// Most events taken before pods get their turns: a flood of news must not starve decisions.
const BATCH: usize = 256;

/// All state of the running node: what its parts share, and the parts.
pub struct Node {
    cx: Context,
    launch: Launch,
    containers: Containers,
    crash_loop: CrashLoop,
    /// Pods whose network takes other processes, by uid.
    connecting: VecMap<String, Connecting>,
    host_ports: HostPorts,
    neighbours: Neighbours,
    services: Services,
    kernel_rules: KernelRules,
    policies: Policies,
    dns: Dns,
    devices: Devices,
    orders: Orders,
    probes: Probes,
    hooks: Hooks,
    pulls: Pulls,
    tokens: Tokens,
    static_pods: StaticPods,
    streams: Streams,
    exit_sync: ExitSync,
    resync: StatusResync,
    host_watch: HostWatch,
    node_status: NodeStatus,
    eviction: Eviction,
    ephemeral_storage: EphemeralStorage,
    image_gc: ImageGc,
    backup: Backup,
    reserve: Reserve,
    shutdown: Shutdown,
    idle: Idle,
    notify: Notify,
    /// What was decided at the start is no longer so: the daemon is to begin again.
    again: bool,
}

/// Why the loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Stopped,
    /// Run the same program again.
    Again,
}

impl Node {
    /// Runs until asked to stop. Containers go on without it.
    ///
    /// # Errors
    /// The store fails permanently: ending, and starting again from the durable state, is better than continuing
    /// without storing anything.
    async fn run(&mut self, sources: &Sources) -> Result<End, StoreError> {
        // Starting up is work.
        self.idle.disturb(self.cx.mono());
        let mut turn = Instant::now();
        loop {
            let now = self.cx.clock.now().mono;
            self.prepare_waited();
            let shutdown = match self.shutdown_step(now) {
                Ok(()) => return self.leave().await.map(|()| End::Stopped),
                Err(again) => again,
            };
            if self.idle.rested(now) {
                self.rest();
            }
            if self.idle.is_rest() {
                edge_protocol::compress::release();
            }
            let ends = self.exit_sync.sync_due(&mut self.cx, &self.containers.monitor)?;
            let acknowledged = self.cx.delete_acknowledged_due(now)?;
            self.policies_step()?;
            self.services.step(&mut self.cx, &self.launch)?;
            self.dns.step(&self.cx, &self.launch, &mut self.services);
            self.devices.step(&self.cx);
            self.orders.step(&mut self.cx)?;
            // After all steps that report.
            let reports = self.send_reports(now);
            let wake = [
                self.cx.pods.wake_due(now),
                ends,
                reports,
                acknowledged,
                Some(self.cx.look_at.unwrap_or(now)),
                self.tokens.wake(&self.cx),
                shutdown,
                self.idle.due(),
                self.services.wake(),
                self.policies.wake(),
                self.dns.wake(&self.services),
                self.orders.wake(),
                self.notify.alive(now),
            ];
            let wake = wake.into_iter().flatten().min();
            metrics::turns::turned(turn.elapsed());
            let news = if self.cx.resumed && self.cx.pods.any_dirty() {
                // Programs that the steps run start now, and not after the next pod's turn.
                smol::future::yield_now().await;
                sources.try_next()
            } else {
                sources.next(wake).await
            };
            turn = Instant::now();
            let mut next = news;
            for _ in 0..BATCH {
                match next.take() {
                    Some(News::Stop) if self.stop_asked()? => {}
                    Some(News::Stop) => return self.cx.delete_acknowledged().map(|()| End::Stopped),
                    Some(news) => self.take(news)?,
                    None => break,
                }
                next = sources.try_next();
            }
            if let Some(news) = next {
                self.take(news)?;
            }
            self.keep_tokens()?;
            if self.tokens.renew(&self.cx) {
                // The bridge answers while the pod's sandbox is made.
                smol::future::yield_now().await;
            }
            self.housekeeping()?;
            if self.neighbours.has_changed() {
                self.follow_neighbours()?;
            }
            if self.again {
                return self.cx.delete_acknowledged().map(|()| End::Again);
            }
            self.sweep_trash();
            if self.cx.resumed
                && let Some(uid) = self.cx.pods.next_dirty()
            {
                self.take_turn(&uid, now)?;
                // Lets the monitor's and the link's tasks move what this turn gave them.
                smol::future::yield_now().await;
            }
        }
    }

    /// Nothing was to be done for a while: what was needed for it goes.
    fn rest(&self) {
        self.cx.store.checkpoint_if_long();
        self.cx.store.release_cache();
        self.launch.sandboxes.looks.rest();
        sampan_memory::trim();
        if self.cx.pods.is_empty() {
            let monitor = self.containers.monitor.clone();
            // One that knows of a container stays; else the next start brings another.
            self.cx.tasks.spawn(async move { drop(monitor.shutdown_if_idle().await) }).detach();
        }
    }

    fn take(&mut self, news: News) -> Result<(), StoreError> {
        match news {
            News::Link(event) => self.take_link(event)?,
            News::Monitor(event) => self.take_monitor(event)?,
            News::StartRefused { id, failure, message } => self.start_failed(&id, failure, &message),
            News::Connection { uid, answer } => self.connection_answered(&uid, answer),
            News::Deleted { id, result } => self.deleted(&id, result),
            News::Cleared { uid, result } => self.cleared(&uid, result),
            News::RulesReplaced(result) => self.rules_replaced(result),
            News::RulesChanged => self.look_at_rules()?,
            News::OthersPassed(blocking) => self.others_passed(blocking)?,
            News::PoliciesApplied(done) => self.policies_applied(done)?,
            News::ServicesApplied(done) => self.services.applied(&mut self.cx, done)?,
            News::FlowsForgotten => self.services.flows_forgotten(self.cx.mono()),
            News::PortsForgotten { uid, result } => self.rules_known(uid, result),
            News::LetIn { pods, result } => self.let_in(pods, &result),
            News::NamespaceAsked(namespace) => self.dns.asked(&mut self.cx, &mut self.services, &namespace),
            News::Devices(heard) => self.devices.heard(&mut self.cx, heard)?,
            News::Order(heard) => self.orders.heard(&mut self.cx, heard)?,
            News::Resized { uid, resized, done } => resize::done(&mut self.cx, &uid, resized, done),
            News::Probe(event) => Probes::take(&mut self.cx, event)?,
            News::HookDone(which, done) => self.hooks.done(&mut self.cx, which, done)?,
            News::Pulling { job, progress } => self.pulls.tell(&mut self.cx, job, progress),
            News::Pulled { job, result } => self.pulls.done(&mut self.cx, job, result),
            News::Walked(number, answers) => self.walked(number, &answers),
            News::Collected(result) => self.image_gc.done(&mut self.cx, result)?,
            News::Asked(asked) => self.asked(asked),
            News::ManifestsChanged => self.scan_manifests()?,
            News::Woken | News::Stop => {}
        }
        Ok(())
    }
}
