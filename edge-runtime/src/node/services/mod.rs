//! Services: which of this node's pods are endpoints, and when the kernel is told. What is decided, and how it is said,
//! is in [`crate::net::services`].
//!
//! A pod's readiness changes rules in the turn that notices it; the cloud is not asked, and need not be there.

mod left_out;
mod local_pod;
mod names;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use edge_protocol::message::ObjectKey;

use self::left_out::LeftOut;
use self::local_pod::local_pod;
use self::routes::Routes;
use super::context::Context;
use super::sources::News;
use crate::config::ServicesConfig;
use crate::launch::Launch;
use crate::net::netlink::conntrack;
use crate::net::services::datagrams::Destinations;
use crate::net::services::node_ports::NodePorts;
use crate::net::services::offenders;
use crate::net::services::rules::{Item, of_service};
use crate::net::services::table::{ServiceName, Wanted};
use crate::net::services::view::{ENDPOINT_VIEW, SERVICE_NAMESPACE, SERVICE_VIEW};
use crate::net::services::{EndpointView, Here, LocalPod, ServiceView, Tables, apply};
use crate::net::site::Plan;
use crate::pod::clock::Mono;
use crate::pod::ports::Protocol;
use crate::store::{Store, StoreError};

/// Between two changes of the kernel's rules: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(50);
/// Rules that were emptied are deleted then: kernels before 6.2 hold them for a moment.
const SWEEP_AFTER: Duration = Duration::from_secs(2);
/// Between two attempts when the kernel, or `nft`, refuses: doubled each time, up to the second one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_AT_MOST: Duration = Duration::from_secs(60);

/// There where the kernel tracks connections of SCTP, once it tracks any.
const SCTP: &str = "/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established";

/// What came of a run of `nft`.
pub(super) enum Done {
    /// At the start: whether the kernel holds what it is to hold.
    Looked(bool),
    Changed(Result<(), String>),
    /// Because of whom it refuses; `None` for nobody in particular.
    Isolated(Option<Vec<ServiceName>>),
    Swept(Result<(), String>),
}

pub(super) struct Services {
    enabled: bool,
    /// As configured.
    node_port_addresses: Vec<String>,
    tables: Tables,
    here: Here,
    views: BTreeMap<ServiceName, ServiceView>,
    /// Endpoints that are not pods of this node.
    others: BTreeMap<ServiceName, EndpointView>,
    /// Pods of this node by uid; none while there is no Service.
    pods: BTreeMap<String, LocalPod>,
    /// Of those that a Service leads to: their addresses, and whether they reach their neighbours without the node, as all
    /// did that older builds connected.
    onlink: BTreeMap<IpAddr, bool>,
    dirty: BTreeSet<ServiceName>,
    pods_changed: bool,
    /// Namespaces all of whose Services are told; an empty name stands for all there are.
    followed: BTreeSet<String>,
    /// What names lead to is not what it was.
    names_changed: bool,
    phase: Phase,
    running: bool,
    not_before: Option<Mono>,
    sweep_at: Option<Mono>,
    failures: u32,
    /// Who else serves Services on this machine: then nothing of ours is in the kernel.
    elsewhere: Option<String>,
    routes: Routes,
    left_out: LeftOut,
    /// It was told that this kernel does not translate SCTP.
    sctp_told: bool,
}

/// How much is known of what the kernel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: this daemon has just started.
    Unknown,
    /// It is to be said as a whole.
    Whole,
    /// Changes are enough.
    Known,
}

impl Services {
    /// Reads the views of the store.
    ///
    /// # Errors
    /// SQLite fails.
    pub(super) fn open(config: &ServicesConfig, tables: Tables, here: Here, store: &Store) -> Result<Self, StoreError> {
        let enabled = config.enabled;
        let mut services = Self {
            enabled,
            node_port_addresses: config.node_port_addresses.clone(),
            tables,
            here,
            views: BTreeMap::new(),
            others: BTreeMap::new(),
            pods: BTreeMap::new(),
            onlink: BTreeMap::new(),
            dirty: BTreeSet::new(),
            pods_changed: false,
            followed: BTreeSet::new(),
            names_changed: false,
            phase: Phase::Unknown,
            running: false,
            not_before: None,
            sweep_at: None,
            failures: 0,
            elsewhere: None,
            routes: Routes::default(),
            left_out: LeftOut::default(),
            sctp_told: false,
        };
        services.follow_node_ports();
        if enabled {
            for key in store.held()?.into_iter().map(|digest| digest.key).filter(is_view) {
                let body = store.object(&key.kind, &key.namespace, &key.name)?;
                services.put(&key, body);
            }
        }
        Ok(services)
    }

    /// An object of the bridge has come, changed or gone; false if it is not about Services.
    pub(super) fn take(&mut self, cx: &Context, key: &ObjectKey) -> bool {
        if !is_view(key) {
            return false;
        }
        if self.enabled {
            let body = cx.store.object(&key.kind, &key.namespace, &key.name);
            let body = body.unwrap_or_else(|error| {
                log::error!("{} {}/{}: {error}", key.kind, key.namespace, key.name);
                None
            });
            self.put(key, body);
        }
        true
    }

    fn put(&mut self, key: &ObjectKey, body: Option<serde_json::Value>) {
        let name = (key.namespace.clone(), key.name.clone());
        let unreadable = |error| {
            let ObjectKey { kind, namespace, name } = key;
            log::error!("{kind} {namespace}/{name} is left out: {error}");
        };
        if key.kind == SERVICE_NAMESPACE {
            match body {
                Some(_) => self.followed.insert(key.namespace.clone()),
                None => self.followed.remove(&key.namespace),
            };
            self.names_changed = true;
            return;
        }
        if key.kind == SERVICE_VIEW {
            let view = body.and_then(|body| ServiceView::read(&body).map_err(unreadable).ok());
            let new: BTreeSet<IpAddr> = view.iter().flat_map(ServiceView::ips).collect();
            let old = match view {
                Some(view) => self.views.insert(name.clone(), view),
                None => self.views.remove(&name),
            };
            let old: BTreeSet<IpAddr> = old.iter().flat_map(ServiceView::ips).collect();
            if new != old {
                self.look_at_outside(&(&new ^ &old));
            }
        } else {
            let view = body.and_then(|body| EndpointView::read(&body).map_err(unreadable).ok());
            match view {
                Some(view) => drop(self.others.insert(name.clone(), view)),
                None => drop(self.others.remove(&name)),
            }
        }
        self.left_out.changed(&name, !self.views.contains_key(&name));
        self.dirty.insert(name);
        self.names_changed = true;
    }

    /// After a pod's turn: whether it is another endpoint now.
    pub(super) fn look_at_pod(&mut self, cx: &Context, launch: &Launch, uid: &str) {
        if self.views.is_empty() {
            // Names know of pods, and whom they may answer.
            self.names_changed = true;
            return;
        }
        let entry = cx.pods.get(uid);
        let now = entry.and_then(|entry| local_pod(cx, entry));
        let old = self.pods.get(uid);
        if old == now.as_ref() {
            return;
        }
        self.names_changed = true;
        for ((namespace, name), view) in &self.views {
            if [old, now.as_ref()].into_iter().flatten().any(|pod| pod.is_selected(namespace, view)) {
                self.dirty.insert((namespace.clone(), name.clone()));
            }
        }
        match now {
            Some(now) => drop(self.pods.insert(uid.to_owned(), now)),
            None => drop(self.pods.remove(uid)),
        }
        self.look_at_addresses(cx, launch);
    }

    fn look_at_addresses(&mut self, cx: &Context, launch: &Launch) {
        let led_to = |uid: &String| {
            let pod = self.pods.get(uid);
            pod.is_some_and(|pod| self.views.iter().any(|((namespace, _), view)| pod.is_selected(namespace, view)))
        };
        let with_sandbox = cx.pods.iter().filter(|(uid, entry)| entry.sandbox_ready() && led_to(uid));
        let onlink = with_sandbox.flat_map(|(uid, entry)| {
            let onlink = !entry.record.sandbox.routed || launch.sandboxes.teardown.is_attached(uid);
            entry.record.ips.iter().map(move |ip| (*ip, onlink))
        });
        let onlink: BTreeMap<IpAddr, bool> = onlink.collect();
        if onlink != self.onlink {
            self.onlink = onlink;
            self.pods_changed = true;
        }
    }

    /// Tells the kernel what has changed, if it is time. Called with each round of the loop.
    pub(super) fn step(&mut self, cx: &Context, launch: &Launch) {
        if self.running || !cx.resumed {
            return;
        }
        if launch.sandboxes.teardown.network.settings().subnets.is_empty() {
            // The cluster has not given any yet, and there is no pod to serve.
            return;
        }
        let now = cx.mono();
        self.dirty.extend(self.left_out.due(now));
        if self.is_idle() {
            return;
        }
        if self.not_before.is_some_and(|at| now < at) {
            return;
        }
        if self.phase != Phase::Known || self.pods.is_empty() {
            self.look_at_all_pods(cx, launch);
        } else {
            // A view may have come or gone.
            self.look_at_addresses(cx, launch);
        }
        let network = &launch.sandboxes.teardown.network;
        let (nft, bridge) = (network.nft().to_owned(), network.settings().bridge.clone());
        self.keep_routes(launch);
        if self.views.is_empty() || self.elsewhere.is_some() {
            let clean = self.phase == Phase::Known && !self.tables.is_there();
            self.forget();
            self.phase = Phase::Known;
            if !clean {
                self.run(cx, async move {
                    Done::Changed(apply::remove(nft, bridge).await.map_err(|error| error.to_string()))
                });
            }
            return;
        }
        match self.phase {
            Phase::Unknown => {
                let wanted = self.wanted();
                self.tables.adopt(&wanted);
                let marks = self.tables.marks();
                self.run(cx, async move { Done::Looked(apply::has(nft, bridge, marks).await) });
            }
            Phase::Known if self.tables.is_there() => {
                if let Some(change) = self.change() {
                    self.sweep_at = Some(now.after(SWEEP_AFTER));
                    self.not_before = Some(now.after(PAUSE));
                    self.run(cx, async move {
                        Done::Changed(apply::run(nft, change).await.map_err(|error| error.to_string()))
                    });
                } else if self.sweep_at.is_some_and(|at| at <= now) {
                    self.sweep_at = None;
                    if let Some(change) = self.tables.sweep() {
                        self.run(cx, async move {
                            Done::Swept(apply::run(nft, change).await.map_err(|error| error.to_string()))
                        });
                    }
                }
            }
            // Neither a change nor all of it was taken.
            Phase::Whole | Phase::Known if self.failures > 1 => {
                let (wanted, tables) = (self.wanted(), self.tables.like());
                self.run(cx, async move { Done::Isolated(offenders::find(&nft, &tables, wanted).await) });
            }
            Phase::Whole | Phase::Known => {
                let wanted = self.wanted();
                let change = self.tables.replace(&wanted);
                self.phase = Phase::Known;
                self.not_before = Some(now.after(PAUSE));
                self.run(
                    cx,
                    async move { Done::Changed(apply::run(nft, change).await.map_err(|error| error.to_string())) },
                );
            }
        }
    }

    /// When [`Services::step`] has something to do although nothing happens.
    pub(super) fn wake(&self) -> Option<Mono> {
        if self.running || self.is_idle() {
            return self.left_out.wake().filter(|_| !self.running);
        }
        let changed = !self.dirty.is_empty() || self.pods_changed || self.phase != Phase::Known;
        if changed { self.not_before } else { self.sweep_at }
    }

    /// What came of the last step.
    pub(super) fn applied(&mut self, cx: &mut Context, done: Done) -> Result<(), StoreError> {
        self.running = false;
        match done {
            // Meanwhile it may have been decided that nothing is known of them.
            Done::Looked(true) if self.phase == Phase::Unknown => self.phase = Phase::Known,
            Done::Looked(true) => {}
            Done::Looked(false) => {
                self.tables.forget();
                self.phase = Phase::Whole;
            }
            Done::Changed(Ok(())) => {
                self.failures = 0;
                self.left_out.taken();
                self.forget_datagrams(cx);
                self.tell_sctp(cx)?;
            }
            // They are gone with the next replacement.
            Done::Swept(Ok(())) => {}
            Done::Isolated(None) => self.back_off(cx),
            Done::Isolated(Some(names)) => {
                self.phase = Phase::Whole;
                self.failures = 1;
                if !names.is_empty() {
                    let names = self.left_out.add(names, cx.mono());
                    let why = format!("the kernel refuses Services, which are left out: {names}");
                    log::error!("{why}");
                    cx.node_event(true, "ServicesLeftOut", &why)?;
                }
            }
            Done::Changed(Err(why)) | Done::Swept(Err(why)) => {
                self.back_off(cx);
                self.tables.forget();
                if self.failures == 1 {
                    log::error!("Services: {why}");
                    cx.node_event(true, "ServicesNotApplied", &format!("Services are served as before: {why}"))?;
                }
            }
        }
        Ok(())
    }

    /// From now on packets from here come to these pods of other nodes.
    pub(super) fn set_reach(&mut self, reach: Plan) {
        if self.here.reach != reach {
            self.here.reach = reach;
            self.dirty.extend(self.others.keys().cloned());
            self.names_changed = true;
        }
    }

    /// Whether a run of `nft` is under way.
    pub(super) fn is_changing(&self) -> bool {
        self.running
    }

    /// Chains that tell that the kernel holds what it is to hold, `true` for IPv6; none if nothing is to be there.
    pub(super) fn marks(&self) -> Vec<(bool, String)> {
        let there = self.phase == Phase::Known && self.tables.is_there();
        if there {
            self.tables.marks().into_iter().map(|(family, mark)| (family == "ip6", mark)).collect()
        } else {
            Vec::new()
        }
    }

    /// The tables are gone: somebody has deleted them.
    pub(super) fn lost(&mut self) {
        self.tables.forget();
        self.phase = Phase::Whole;
    }

    /// The node has other addresses now.
    pub(super) fn set_addresses(&mut self, ips: &[IpAddr]) {
        self.here.ips = ips.to_vec();
        if self.follow_node_ports() {
            self.lost();
        }
        let limited = self.views.iter().filter(|(_, view)| !view.load_balancer_source_ranges.is_empty());
        self.dirty.extend(limited.map(|(name, _)| name.clone()));
    }

    fn follow_node_ports(&mut self) -> bool {
        // Checked when the configuration was read.
        let ports = NodePorts::read(&self.node_port_addresses, &self.here.ips).unwrap_or_default();
        self.tables.set_node_ports(ports)
    }

    /// Who else serves Services on this machine.
    pub(super) fn elsewhere(&self) -> Option<&str> {
        self.elsewhere.as_deref()
    }

    /// Somebody else serves Services on this machine, or nobody does any more; whether that is news.
    pub(super) fn set_elsewhere(&mut self, elsewhere: Option<String>) -> bool {
        if elsewhere == self.elsewhere {
            return false;
        }
        match &elsewhere {
            Some(who) => log::warn!("Services are served by {who}: this node has no rules for them"),
            None => log::info!("nobody else serves Services on this machine any more"),
        }
        self.elsewhere = elsewhere;
        // What is there then is not known: the first daemon of the machine may have been another one.
        self.lost();
        true
    }

    fn back_off(&mut self, cx: &Context) {
        let pause = RETRY.saturating_mul(1 << self.failures.min(6)).min(RETRY_AT_MOST);
        self.not_before = Some(cx.mono().after(pause));
        self.phase = Phase::Whole;
        self.failures += 1;
    }

    /// Rules for SCTP are taken by every kernel, but not every one finds its ports.
    fn tell_sctp(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        let sctp = |view: &ServiceView| view.ports.iter().any(|port| port.protocol() == Some(Protocol::Sctp));
        if self.sctp_told || Path::new(SCTP).exists() || !self.views.values().any(sctp) {
            return Ok(());
        }
        self.sctp_told = true;
        let why = "the kernel tracks no connections of SCTP (CONFIG_NF_CT_PROTO_SCTP): Services of it lead nowhere";
        log::warn!("{why}");
        cx.node_event(true, "SctpNotSupported", why)
    }

    /// Senders that never pause find who answers now.
    fn forget_datagrams(&self, cx: &Context) {
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let (none, mut all) = (EndpointView::default(), Destinations::at(&cx.host.host_ips));
        for (name, view) in &self.views {
            all.add(&name.0, view, &pods, self.others.get(name).unwrap_or(&none), &self.here);
        }
        // Flows of others are theirs.
        if all.is_empty() || self.elsewhere.is_some() {
            return;
        }
        if let Err(error) = conntrack::forget_udp_where(|flow| all.is_stale(flow)) {
            log::warn!("clients that never pause may miss new endpoints of UDP: {error}");
        }
    }

    fn is_idle(&self) -> bool {
        let known = self.phase == Phase::Known;
        known && self.dirty.is_empty() && !self.pods_changed && self.sweep_at.is_none()
    }

    fn run(&mut self, cx: &Context, work: impl Future<Output = Done> + 'static) {
        self.running = true;
        cx.background(async move { News::ServicesApplied(work.await) });
    }

    fn forget(&mut self) {
        self.tables.forget();
        self.dirty.clear();
        self.pods.clear();
        self.onlink.clear();
        self.pods_changed = false;
        self.sweep_at = None;
    }

    fn look_at_all_pods(&mut self, cx: &Context, launch: &Launch) {
        self.pods = cx.pods.iter().filter_map(|(uid, entry)| Some((uid.clone(), local_pod(cx, entry)?))).collect();
        self.look_at_addresses(cx, launch);
    }

    fn wanted(&mut self) -> Wanted {
        self.dirty.clear();
        self.pods_changed = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let services = self.views.keys().map(|name| (name.clone(), self.items(name, &pods))).collect();
        Wanted { services, pods: self.onlink.clone() }
    }

    fn change(&mut self) -> Option<crate::net::services::table::Change> {
        let mut names = std::mem::take(&mut self.dirty);
        names.extend(self.tables.take_heirs());
        self.pods_changed = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let services = names.into_iter().map(|name| {
            let items = self.items(&name, &pods);
            (name, items)
        });
        let services = services.collect();
        let change = self.tables.change(&services, &self.onlink);
        self.dirty = self.tables.take_heirs();
        change
    }

    fn items(&self, name: &ServiceName, pods: &[LocalPod]) -> BTreeMap<Item, String> {
        let Some(view) = self.views.get(name).filter(|_| !self.left_out.has(name)) else { return BTreeMap::new() };
        let none = EndpointView::default();
        let others = self.others.get(name).unwrap_or(&none);
        let own;
        let view = match view.outside().next() {
            None => view,
            Some(_) => {
                own = self.without_what_is_others(view);
                &own
            }
        };
        of_service((&name.0, &name.1), view, pods, others, &self.here, &self.tables.families())
    }

    /// Outside addresses are whoever's asks for them (CVE-2020-8554), but for those of Services inside the cluster, and those
    /// where the node itself answers its pods.
    fn without_what_is_others(&self, view: &ServiceView) -> ServiceView {
        let mut view = view.clone();
        let inside: BTreeSet<IpAddr> = self.views.values().flat_map(ServiceView::ips).collect();
        let free = |ip: &IpAddr| !inside.contains(ip) && !self.tables.is_gateway(*ip) && !ip.is_loopback();
        view.external_ips.retain(free);
        view.ingress_ips.retain(free);
        view
    }

    /// Services that ask for an outside address that is inside the cluster from now on, or no longer is.
    fn look_at_outside(&mut self, ips: &BTreeSet<IpAddr>) {
        let asks = |view: &ServiceView| view.outside().any(|ip| ips.contains(ip));
        let names = self.views.iter().filter(|(_, view)| asks(view)).map(|(name, _)| name.clone());
        self.dirty.extend(names);
    }
}

fn is_view(key: &ObjectKey) -> bool {
    [SERVICE_VIEW, ENDPOINT_VIEW, SERVICE_NAMESPACE].contains(&key.kind.as_str())
}
