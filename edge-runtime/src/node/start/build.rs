//! The node and its parts, made from what the host is found to be.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::message::Report;

use super::error::{StartError, io};
use super::store::{self, Note};
use crate::clock::Clock;
use crate::config::Config;
use crate::eviction::{Manager, measure};
use crate::launch::Launch;
use crate::launch::runtimes::Runtimes;
use crate::monitor::client::{MonitorClient, Settings};
use crate::monitor::exec::{self, exec};
use crate::net::services::{Here, Tables};
use crate::node::Node;
use crate::node::containers::Containers;
use crate::node::context::Context;
use crate::node::crash_loop::CrashLoop;
use crate::node::event_log::EventLog;
use crate::node::events::about_node;
use crate::node::eviction::Eviction;
use crate::node::host_watch::maintain;
use crate::node::neighbours::state::Neighbours;
use crate::node::node_status::NodeStatus;
use crate::node::notify::Notify;
use crate::node::policies::state::Policies;
use crate::node::probes::Probes;
use crate::node::recovery::state::Recovery;
use crate::node::services::Services;
use crate::node::sources::{News, Senders};
use crate::paths::Paths;
use crate::pod::status::HostFacts;
use crate::probe::{ExecProbe, Supervisor};
use crate::store::{Fact, Store, StoreError};
use crate::sys::board::Sensors;
use crate::sys::reserve::Reserve;
use crate::sys::tasks::Tasks;

/// Where the node is, as users label it (K8s core/v1, `LabelTopologyZone`).
const ZONE: &str = "topology.kubernetes.io/zone";

pub(super) fn build(paths: &Paths, mut config: Config, tasks: &Tasks, senders: Senders) -> Result<Node, StartError> {
    let clock = Clock::new().map_err(io("/proc/sys/kernel/random/boot_id"))?;
    // The store must open on a full disk, too.
    let reserve = Reserve::new(paths.reserve());
    maintain(&reserve, paths);
    let (mut store, mut notes) = store::open(paths, &config.node_name, clock.boot_id())?;
    store.keep_secrets_in_memory(config.security.secrets_in_memory)?;
    let neighbours = Neighbours::open(&config.network, &config.node_name, &store)?;
    if config.network.has_routes() {
        config.network.subnets = neighbours.own_subnets();
    }
    let config = Rc::new(config);
    let (launch, warnings) = Launch::open(paths, Rc::clone(&config))?;
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
    if let Some(worker) = launch.base.cgroups.worker() {
        tasks.spawn(worker).detach();
    }
    exec::sweep(&paths.runtime_root());
    let monitor = connect_monitor(paths, &config, tasks, &senders);
    notes.insert(0, (false, "Starting", "Starting edge-runtime.".to_owned()));
    notes.extend(launch.outdated.iter().map(|text| (true, "OutdatedRuntime", text.clone())));
    log::info!("node {} starts below {}", config.node_name, paths.root().display());
    let event_log = EventLog::new(paths);
    tell(&mut store, &event_log, &config.node_name, &notes, &clock)?;
    let recovery = Recovery::new(store.is_incomplete()?);
    let node_status = node_status(paths, &config, &launch, &store)?;
    let manager = Manager::new(config.eviction.thresholds.clone(), config.eviction.transition);
    let eviction = Eviction::new(manager, measure::separate_images(paths));
    let probes = Probes(Supervisor::new(tasks.clone(), exec_probe(paths, &launch.runtimes), tell_probe(&senders)));
    let network = launch.sandboxes.teardown.network.settings();
    let tables = Tables::new(&network.bridge, &network.subnets);
    let here = Here {
        node: config.node_name.clone(),
        zone: config.labels.get(ZONE).cloned(),
        ips: launch.sandboxes.host_ips.clone(),
        subnets: network.subnets.clone(),
        reach: Default::default(),
        dns: Vec::new(),
    };
    let services = Services::open(&config.services, tables, here, &store)?;
    let policies = Policies::open(config.network.policies, &store)?;
    let cx = Context {
        config,
        paths: paths.clone(),
        clock,
        tasks: tasks.clone(),
        senders,
        store,
        pods: Default::default(),
        recovery,
        resumed: false,
        host: HostFacts {
            host_ips: launch.sandboxes.host_ips.clone(),
            recursive_read_only: launch.runtime.recursive_read_only,
            runtime: launch.runtime.name.clone(),
        },
        link: None,
        api_certificate: None,
        outgoing: Default::default(),
        acknowledged: Default::default(),
        correlator: Default::default(),
        event_log,
        look_at: None,
    };
    Ok(Node {
        cx,
        launch,
        containers: Containers::new(monitor),
        crash_loop: CrashLoop::open(&paths.run()),
        connecting: Default::default(),
        host_ports: Default::default(),
        neighbours,
        services,
        kernel_rules: Default::default(),
        policies,
        orders: Default::default(),
        dns: Default::default(),
        devices: Default::default(),
        local_api: Default::default(),
        plugins: Default::default(),
        probes,
        hooks: Default::default(),
        pulls: Default::default(),
        tokens: Default::default(),
        static_pods: Default::default(),
        streams: Default::default(),
        exit_sync: Default::default(),
        resync: Default::default(),
        host_watch: Default::default(),
        node_status,
        eviction,
        ephemeral_storage: Default::default(),
        image_gc: Default::default(),
        backup: Default::default(),
        reserve,
        shutdown: Default::default(),
        idle: Default::default(),
        notify: Notify::from_env(),
        again: false,
    })
}

fn connect_monitor(paths: &Paths, config: &Config, tasks: &Tasks, senders: &Senders) -> MonitorClient {
    let settings = Settings {
        workers: config.runtime.parallel(),
        runtime_timeout: Duration::from_secs(*config.runtime.request_timeout_seconds),
        ..Settings::default()
    };
    MonitorClient::connect_or_spawn(tasks, paths.clone(), settings, senders.monitor.clone())
}

/// The first events about the node.
fn tell(store: &mut Store, log: &EventLog, node_name: &str, notes: &[Note], clock: &Clock) -> Result<(), StoreError> {
    let now = clock.now();
    store.write(|writer| {
        notes.iter().try_for_each(|(warning, reason, message)| {
            let event = about_node(node_name, *warning, reason, message, &now);
            writer.report(&Report::Event { event }).map(drop)
        })
    })?;
    for (warning, reason, message) in notes {
        log.add(&about_node(node_name, *warning, reason, message, &now));
    }
    // Reports that a killed daemon left.
    store.sync()
}

fn node_status(paths: &Paths, config: &Config, launch: &Launch, store: &Store) -> Result<NodeStatus, StoreError> {
    let version = launch.runtime.version();
    if version.is_none() {
        log::error!(
            "the OCI runtime {} does not run: install it, or name another as runtime.command",
            config.runtime.command().display()
        );
    }
    let sensors = Sensors::find(Path::new("/sys"), vec![paths.state(), paths.layers(), paths.all_pod_logs()]);
    Ok(NodeStatus::new(version.unwrap_or_default(), store.fact(Fact::Conditions)?.as_deref(), sensors))
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
