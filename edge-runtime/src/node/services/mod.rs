//! Services: which of this node's pods are endpoints, and when the kernel is told. What is decided, and how it is said,
//! is in [`crate::net::services`].
//!
//! A pod's readiness changes rules in the turn that notices it; the cloud is not asked, and need not be there.

mod local_pod;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use edge_protocol::message::ObjectKey;

use self::local_pod::local_pod;
use super::context::Context;
use super::sources::News;
use crate::launch::Launch;
use crate::net::netlink::conntrack;
use crate::net::services::datagrams::Destinations;
use crate::net::services::rules::{Item, of_service};
use crate::net::services::table::{ServiceName, Wanted};
use crate::net::services::view::{ENDPOINT_VIEW, SERVICE_NAMESPACE, SERVICE_VIEW};
use crate::net::services::{EndpointView, Here, LocalPod, ServiceView, Tables, apply};
use crate::pod::clock::Mono;
use crate::store::{Store, StoreError};

/// Between two changes of the kernel's rules: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(50);
/// Rules that were emptied are deleted then: kernels before 6.2 hold them for a moment.
const SWEEP_AFTER: Duration = Duration::from_secs(2);
/// Between two attempts when the kernel, or `nft`, refuses: doubled each time, up to the second one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_AT_MOST: Duration = Duration::from_secs(60);

/// What came of a run of `nft`.
pub(super) enum Done {
    /// At the start: whether the kernel holds what it is to hold.
    Looked(bool),
    Changed(Result<(), String>),
    Swept(Result<(), String>),
}

pub(super) struct Services {
    enabled: bool,
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
    pub(super) fn open(enabled: bool, tables: Tables, node: &str, store: &Store) -> Result<Self, StoreError> {
        let mut services = Self {
            enabled,
            tables,
            here: Here { node: node.to_owned(), dns: Vec::new() },
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
        };
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
            match view {
                Some(view) => drop(self.views.insert(name.clone(), view)),
                None => drop(self.views.remove(&name)),
            }
        } else {
            let view = body.and_then(|body| EndpointView::read(&body).map_err(unreadable).ok());
            match view {
                Some(view) => drop(self.others.insert(name.clone(), view)),
                None => drop(self.others.remove(&name)),
            }
        }
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
        if self.running || !cx.resumed || self.is_idle() {
            return;
        }
        let now = cx.mono();
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
        let nothing = self.views.is_empty();
        if nothing && (self.phase != Phase::Known || self.tables.is_there()) {
            self.forget();
            self.phase = Phase::Known;
            self.run(
                cx,
                async move { Done::Changed(apply::remove(nft, bridge).await.map_err(|error| error.to_string())) },
            );
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
            return None;
        }
        let changed = !self.dirty.is_empty() || self.pods_changed || self.phase != Phase::Known;
        if changed { self.not_before } else { self.sweep_at }
    }

    /// What came of the last step.
    pub(super) fn applied(&mut self, cx: &mut Context, done: Done) -> Result<(), StoreError> {
        self.running = false;
        match done {
            Done::Looked(true) => self.phase = Phase::Known,
            Done::Looked(false) => {
                self.tables.forget();
                self.phase = Phase::Whole;
            }
            Done::Changed(Ok(())) => {
                self.failures = 0;
                self.forget_datagrams(cx);
            }
            // They are gone with the next replacement.
            Done::Swept(Ok(())) => {}
            Done::Changed(Err(why)) | Done::Swept(Err(why)) => {
                let pause = RETRY.saturating_mul(1 << self.failures.min(6)).min(RETRY_AT_MOST);
                self.not_before = Some(cx.mono().after(pause));
                self.tables.forget();
                self.phase = Phase::Whole;
                self.failures += 1;
                if self.failures == 1 {
                    log::error!("Services: {why}");
                    cx.node_event(true, "ServicesNotApplied", &format!("Services are served as before: {why}"))?;
                }
            }
        }
        Ok(())
    }

    /// Senders that never pause find who answers now.
    fn forget_datagrams(&self, cx: &Context) {
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let (none, mut all) = (EndpointView::default(), Destinations::at(&cx.host.host_ips));
        for (name, view) in &self.views {
            all.add(&name.0, view, &pods, self.others.get(name).unwrap_or(&none), &self.here);
        }
        if all.is_empty() {
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
        let Some(view) = self.views.get(name) else { return BTreeMap::new() };
        let none = EndpointView::default();
        let others = self.others.get(name).unwrap_or(&none);
        of_service((&name.0, &name.1), view, pods, others, &self.here, &self.tables.families())
    }
}

fn is_view(key: &ObjectKey) -> bool {
    [SERVICE_VIEW, ENDPOINT_VIEW, SERVICE_NAMESPACE].contains(&key.kind.as_str())
}
