//! Services: which of this node's pods are endpoints, and when to update the kernel. The decisions and the rules are in
//! [`crate::net::services`].
//!
//! A change of a pod's readiness changes the rules in the same turn, without the cloud.
//!
//! This file holds the state. [`views`] and [`surroundings`] take inputs, [`bounds`] limits them, [`kernel`] updates the
//! kernel with what [`portion`] computes, [`outcome`] handles the result, and [`names`] has the data for the DNS helper.

mod bounds;
pub(super) mod done;
mod flows;
mod job;
mod kernel;
mod left_out;
mod local_pod;
mod names;
mod outcome;
mod portion;
mod routes;
mod surroundings;
mod untold;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use self::flows::Flows;
use self::left_out::LeftOut;
use self::local_pod::local_pod;
use self::untold::Untold;
use super::context::Context;
use crate::config::ServicesConfig;
use crate::launch::Launch;
use crate::net::services::table::ServiceName;
use crate::net::services::{EndpointView, Here, LocalPod, ServiceView, Tables};
use crate::pod::clock::Mono;
use crate::store::{Store, StoreError};
use crate::sys::gather::Gather;
use crate::sys::vec_map::VecMap;

pub(super) struct Services {
    enabled: bool,
    /// Addresses as configured.
    node_port_addresses: Vec<String>,
    tables: Tables,
    here: Here,
    views: BTreeMap<ServiceName, ServiceView>,
    /// Endpoints that are not pods of this node.
    others: BTreeMap<ServiceName, EndpointView>,
    /// Pods of this node by uid.
    pods: VecMap<String, LocalPod>,
    /// Addresses of the pods behind Services, and whether these reach their neighbours without the node, like pods that
    /// an older build connected.
    onlink: BTreeMap<IpAddr, bool>,
    dirty: BTreeSet<ServiceName>,
    pods_changed: bool,
    /// Namespaces whose Services are complete; an empty name means all namespaces.
    followed: BTreeSet<String>,
    /// The records of some names have changed.
    names_changed: bool,
    /// Services to send to the DNS helper.
    untold: Untold,
    phase: Phase,
    running: bool,
    not_before: Option<Mono>,
    sweep_at: Option<Mono>,
    failures: u32,
    /// Another program that serves Services on this machine: then the kernel holds none of our rules.
    elsewhere: Option<String>,
    routes: Routes,
    left_out: LeftOut,
    /// Those that are too large for this node, and why.
    beyond: BTreeMap<ServiceName, String>,
    beyond_told: BTreeSet<ServiceName>,
    /// Where the node's link leads, for all that is known.
    link: Vec<SocketAddr>,
    flows: Flows,
    /// The missing SCTP support of this kernel was reported.
    sctp_told: bool,
}

/// State of the routes to Services' addresses.
#[derive(Debug, Default)]
struct Routes {
    /// Whether, as far as known, the kernel has no route of ours and should have none.
    none: bool,
    /// The kernel has refused; reported once.
    refused: bool,
}

/// How much is known of what the kernel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: this daemon has just started.
    Unknown,
    /// The complete state must be written.
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
            pods: VecMap::new(),
            onlink: BTreeMap::new(),
            dirty: BTreeSet::new(),
            pods_changed: false,
            followed: BTreeSet::new(),
            names_changed: false,
            untold: Untold::All,
            phase: Phase::Unknown,
            running: false,
            not_before: None,
            sweep_at: None,
            failures: 0,
            elsewhere: None,
            routes: Routes::default(),
            left_out: LeftOut::default(),
            beyond: BTreeMap::new(),
            beyond_told: BTreeSet::new(),
            link: Vec::new(),
            flows: Flows::default(),
            sctp_told: false,
        };
        services.follow_node_ports();
        if enabled {
            services.read_views(store)?;
        }
        Ok(services)
    }

    /// After a pod's turn: whether it is another endpoint now.
    pub(super) fn look_at_pod(&mut self, cx: &Context, launch: &Launch, uid: &str) {
        let now = cx.pods.get(uid).and_then(|entry| local_pod(cx, entry));
        if self.pod_changed(uid, now) {
            self.look_at_addresses(cx, launch);
        }
    }

    /// Takes a pod as it is now. Returns true if it is an endpoint of a Service, or was one.
    fn pod_changed(&mut self, uid: &str, now: Option<LocalPod>) -> bool {
        let old = self.pods.get(uid);
        if old == now.as_ref() {
            return false;
        }
        let both = [old, now.as_ref()];
        let services: BTreeSet<ServiceName> =
            both.into_iter().flatten().flat_map(|pod| services_of(&self.views, pod)).cloned().into_set();
        // Names of other pods depend only on their addresses.
        let [was, is] = both.map(|pod| pod.map(|pod| (&pod.namespace, &pod.ips)));
        let is_endpoint = !services.is_empty();
        self.names_changed |= is_endpoint || was != is;
        // The Service of the pod's subdomain has a name for the pod, too, even if its endpoints come from the bridge.
        let subdomains =
            both.into_iter().flatten().filter_map(|pod| Some((pod.namespace.clone(), pod.subdomain.clone()?)));
        let subdomains = subdomains.filter(|name| self.views.contains_key(name));
        self.untold.add(services.iter().cloned().chain(subdomains));
        self.dirty.extend(services);
        match now {
            Some(now) => drop(self.pods.insert(uid.to_owned(), now)),
            None => drop(self.pods.remove(uid)),
        }
        is_endpoint
    }

    pub(super) fn look_at_addresses(&mut self, cx: &Context, launch: &Launch) {
        let led_to = |uid: &String| {
            let pod = self.pods.get(uid);
            pod.is_some_and(|pod| services_of(&self.views, pod).next().is_some())
        };
        let with_sandbox = cx.pods.iter().filter(|(uid, entry)| entry.sandbox_ready() && led_to(uid));
        let onlink = with_sandbox.flat_map(|(uid, entry)| {
            let onlink = !entry.record.sandbox.routed || launch.sandboxes.teardown.is_attached(uid);
            entry.record.ips.iter().map(move |ip| (*ip, onlink))
        });
        let onlink: BTreeMap<IpAddr, bool> = onlink.into_map();
        if onlink != self.onlink {
            self.onlink = onlink;
            self.pods_changed = true;
        }
    }

    pub(super) fn look_at_all_pods(&mut self, cx: &Context, launch: &Launch) {
        let pods = cx.pods.iter().filter_map(|(uid, entry)| Some((uid.clone(), local_pod(cx, entry)?)));
        let pods: VecMap<String, LocalPod> = pods.collect();
        if self.pods != pods {
            self.pods = pods;
            // Which Services have other endpoints is not known.
            (self.names_changed, self.untold) = (true, Untold::All);
        }
        self.look_at_addresses(cx, launch);
    }
}

/// The Services that are for this pod.
fn services_of<'a>(
    views: &'a BTreeMap<ServiceName, ServiceView>,
    pod: &'a LocalPod,
) -> impl Iterator<Item = &'a ServiceName> {
    let first = (pod.namespace.clone(), String::new());
    let near = views.range(first..).take_while(move |((namespace, _), _)| *namespace == pod.namespace);
    near.filter(move |((namespace, _), view)| pod.is_selected(namespace, view)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests;
