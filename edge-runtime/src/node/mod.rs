//! The node: one loop that owns all state. Events come in as news; each pod takes turns, and a turn commits its
//! decisions to the store before it acts on them.
//!
//! | file | owns |
//! |---|---|
//! | `event_loop` | the loop: which part gets which news, and when each has its turn |
//! | `start` | the order of starting: store, host, monitor, pods, then the cloud |
//! | `sources` | the channels that news arrives on |
//! | `pods` | the pods in memory, and which of them need a turn |
//! | `turn` | one turn of a pod: decide, commit, execute |
//! | `admit`, `resize` | whether the node accepts a pod, or an increase of its resources |
//! | `execute` | what each step does |
//! | `network` | connecting pods, and their cgroups, as far as that needs another process |
//! | `link_events` | events of the link |
//! | `objects` | objects from the cloud: into the store, then to the pods |
//! | `neighbours` | nodes of this LAN, and the routes to their pods |
//! | `services` | the endpoints of Services on this node, and when to update the kernel |
//! | `kernel_rules` | reaction to changes of the kernel's rules by other programs |
//! | `policies` | the pods that NetworkPolicies select here, and when to update the kernel |
//! | `devices` | the helper for devices: messages to it and from it |
//! | `local_api` | the helper for requests of pods to the API: messages to it, and its streams |
//! | `plugins` | the helper for device plugins: messages to it and from it, and containers that wait for it |
//! | `orders` | fleet jobs: their helper, and their progress |
//! | `dns` | the helper that answers pods' DNS queries |
//! | `monitor_events` | events from the monitor |
//! | `containers` | owners of container ids, and requests to the monitor |
//! | `context` | shared by all parts: store, pods, clock, tasks |
//! | `cpus` | CPUs that containers have for themselves |
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
mod cpus;
mod crash_loop;
mod device_messages;
mod devices;
mod dns;
mod ephemeral_storage;
mod event_correlator;
mod event_log;
mod event_loop;
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
mod link_events;
mod local_api;
mod metrics;
mod monitor_events;
mod neighbours;
mod network;
mod node_status;
mod notify;
mod objects;
mod orders;
mod outgoing;
mod plugins;
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

use crate::launch::Launch;
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
use local_api::LocalApi;
use neighbours::state::Neighbours;
use network::connecting::Connecting;
use network::host_ports::HostPorts;
use node_status::NodeStatus;
use orders::Orders;
use plugins::Plugins;
use policies::state::Policies;
use probes::Probes;
use pulls::Pulls;
use services::Services;
use shutdown::state::Shutdown;
use static_pods::StaticPods;
use status_resync::StatusResync;
use streams::Streams;
use tokens::Tokens;

pub use shutdown::MARK as SHUTDOWN_MARK;
pub use start::{STORE_IN_MEMORY, StartError, lock, run};

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
    local_api: LocalApi,
    plugins: Plugins,
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
