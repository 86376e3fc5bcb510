//! Data of Services and pods for the DNS helper.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Services;
use super::untold::Untold;
use crate::dns::names;
use crate::dns::zone::Cluster;
use crate::launch::Launch;
use crate::net::services::table::ServiceName;
use crate::net::services::{LocalPod, ServiceView};
use crate::node::context::Context;

impl Services {
    /// This node answers DNS queries from now on, at these addresses and at those of the cluster's DNS.
    pub(in crate::node) fn answer_names_at(&mut self, listen: &[IpAddr]) {
        self.names_changed = true;
        if self.here.dns != listen {
            self.here.dns = listen.to_vec();
            self.untold = Untold::All;
            self.dirty.extend(self.views.iter().filter(|(_, view)| view.dns).map(|(name, _)| name.clone()));
        }
    }

    /// Data for the DNS helper beside Services has changed.
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

    /// Returns the cluster for the DNS helper, and marks it as sent. `parts`: only changed Services, if they are known.
    pub(in crate::node) fn cluster(&mut self, cx: &Context, launch: &Launch, parts: bool) -> Cluster {
        if !parts || self.untold == Untold::All {
            self.untold = Untold::All;
            self.look_at_all_pods(cx, launch);
        }
        if self.untold != Untold::Of(BTreeSet::new()) {
            self.look_at_bounds();
        }
        self.names_changed = false;
        let (told, gone) = self.take_untold();
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
            services: told.iter().filter_map(service).collect(),
            partial: gone.is_some(),
            gone: gone.unwrap_or_default(),
            offers_parts: true,
            pods: pods.iter().flat_map(|pod| pod.ips.iter().map(|ip| (*ip, pod.namespace.clone()))).collect(),
            followed: self.followed.iter().cloned().collect(),
            own: self.views.values().filter(|view| view.dns).flat_map(ServiceView::ips).collect(),
            health: self.views.keys().filter_map(health).collect(),
            ..Cluster::default()
        }
    }

    /// Changed Services, and deleted ones; `None` if all are sent.
    pub(super) fn take_untold(&mut self) -> (Vec<ServiceName>, Option<Vec<ServiceName>>) {
        match std::mem::replace(&mut self.untold, Untold::Of(BTreeSet::new())) {
            Untold::All => (self.views.keys().cloned().collect(), None),
            Untold::Of(names) => {
                let (told, gone) = names.into_iter().partition(|name| self.views.contains_key(name));
                (told, Some(gone))
            }
        }
    }
}
