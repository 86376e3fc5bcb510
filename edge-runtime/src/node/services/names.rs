//! What the DNS helper is told of Services and pods.

use std::net::IpAddr;

use super::Services;
use crate::dns::names;
use crate::dns::zone::Cluster;
use crate::launch::Launch;
use crate::net::services::table::ServiceName;
use crate::net::services::{LocalPod, ServiceView};
use crate::node::context::Context;

impl Services {
    /// From now on questions for names are answered by this node, at these addresses: those to the cluster's DNS, too.
    pub(in crate::node) fn answer_names_at(&mut self, listen: &[IpAddr]) {
        self.names_changed = true;
        if self.here.dns != listen {
            self.here.dns = listen.to_vec();
            self.dirty.extend(self.views.iter().filter(|(_, view)| view.dns).map(|(name, _)| name.clone()));
        }
    }

    /// What is told of names beside Services has changed.
    pub(in crate::node) fn names_changed(&mut self) {
        self.names_changed = true;
    }

    /// Whether load balancers ask for the health of one.
    pub(in crate::node) fn has_health_checks(&self) -> bool {
        self.views.values().any(|view| view.health_check_port().is_some())
    }

    /// Whether a Service of this namespace is known.
    pub(in crate::node) fn has_any_in(&self, namespace: &str) -> bool {
        let first = (namespace.to_owned(), String::new());
        self.views.range(first..).next().is_some_and(|((found, _), _)| found == namespace)
    }

    pub(in crate::node) fn has_other_names(&self) -> bool {
        self.names_changed
    }

    /// The cluster as names see it, from now on the last that is known.
    pub(in crate::node) fn cluster(&mut self, cx: &Context, launch: &Launch) -> Cluster {
        self.look_at_all_pods(cx, launch);
        self.look_at_bounds();
        self.names_changed = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let service = |name: &ServiceName| {
            let (view, others) = self.taken(name)?;
            Some(names::service(name, &view, &pods, others, &self.here))
        };
        let health = |name: &ServiceName| {
            let (view, others) = self.taken(name)?;
            names::health(name, &view, &pods, others, &self.here)
        };
        Cluster {
            domain: cx.config.network.cluster_domain.clone(),
            listen: self.here.dns.clone(),
            services: self.views.keys().filter_map(service).collect(),
            pods: pods.iter().flat_map(|pod| pod.ips.iter().map(|ip| (*ip, pod.namespace.clone()))).collect(),
            followed: self.followed.iter().cloned().collect(),
            own: self.views.values().filter(|view| view.dns).flat_map(ServiceView::ips).collect(),
            health: self.views.keys().filter_map(health).collect(),
            ..Cluster::default()
        }
    }
}
