//! Which nodes receive Services, the neighbours of their site, and their devices and rules. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::ObjectKey;
use edge_protocol::version::Wants;

use super::{Effect, Node, World, without};
use crate::bridge::told::groups::{ServiceScope, device_views, rule_views, service_views};
use crate::bridge::told::kinds::Kind;

impl World {
    /// Stores what the node asks for on connecting, and its known site.
    pub fn wants(&mut self, node: &str, wants: Wants, site: Option<&str>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let (scope, site) = (self.service_scope, site.filter(|_| wants.routes));
        let Some(view) = self.nodes.get_mut(node) else { return effects };
        let policies = view.wants.policies != wants.policies;
        let csi = view.wants.csi != wants.csi;
        let same = view.wants.services == wants.services && view.site.as_deref() == site;
        let behind = [wants.devices.then(|| device_views(node)), wants.rules.then(|| rule_views(node))];
        let behind: Box<[Arc<ObjectKey>]> = behind.into_iter().flatten().map(Arc::new).collect();
        let old_behind = std::mem::replace(&mut view.behind, behind.clone());
        (view.wants, view.site) = (wants, site.map(Into::into));
        if !same {
            let (added, removed) = view.choose(scope);
            self.release(node, &removed, &mut effects);
            added.into_iter().for_each(|name| self.need(node, name, &mut effects));
        }
        // Separate from Services: devices stay while a node moves to another site.
        if behind != old_behind {
            self.release(node, &without(&old_behind, &behind), &mut effects);
            without(&behind, &old_behind).into_iter().for_each(|name| self.need(node, name, &mut effects));
        }
        if csi {
            self.csi_nodes = if wants.csi { self.csi_nodes + 1 } else { self.csi_nodes - 1 };
            self.choose_volumes(node, None, &mut effects);
        }
        if policies {
            self.choose_policies(node, &mut effects);
        }
        self.settle(node, &mut effects);
        effects
    }

    /// The site of a node has changed, or ended.
    pub fn located(&mut self, node: &str, site: Option<&str>) -> Vec<Effect> {
        let wants = self.nodes.get(node).map(|view| view.wants);
        wants.map(|wants| self.wants(node, wants, site)).unwrap_or_default()
    }

    /// The sites of all nodes are known.
    pub fn all_located(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !std::mem::replace(&mut self.located, true) {
            let waiting = self.nodes.iter().filter(|(_, view)| view.wants.routes).map(|(name, _)| name.clone());
            waiting.collect::<Vec<_>>().iter().for_each(|node| self.settle(node, &mut effects));
        }
        effects
    }

    /// The node needs these namespaces, instead of earlier ones.
    pub fn interested(&mut self, node: &str, namespaces: &[String], now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        let scope = self.service_scope;
        let Some(view) = self.nodes.get_mut(node) else { return effects };
        // The nodes of a site get all Services anyway.
        let any = view.wants.services && scope == ServiceScope::Namespaces;
        view.interests.set(namespaces.iter().filter(|_| any), now);
        let own = view.own(scope);
        let old = std::mem::replace(&mut view.own, own.clone());
        for name in without(&own, &old) {
            self.need(node, name, &mut effects);
        }
        self.release(node, &without(&old, &own), &mut effects);
        self.settle(node, &mut effects);
        effects
    }
}

impl Node {
    /// The groups of Services that a pod of the namespace needs.
    pub(super) fn groups(&self, namespace: &str, scope: ServiceScope) -> impl Iterator<Item = ObjectKey> + use<> {
        let groups = self.wants.services.then(|| service_views(namespace, scope, self.site.as_deref()));
        groups.into_iter().flatten()
    }

    /// Groups that it receives independently of its pods, in order.
    pub(super) fn own(&self, scope: ServiceScope) -> Box<[Arc<ObjectKey>]> {
        let site = self.site.as_deref().map(|site| Kind::SiteView.key("", site));
        let groups = self.interests.names.iter().flat_map(|namespace| {
            // The API's own Service and the cluster's DNS are not in their namespaces' groups.
            let groups = self.groups(namespace, scope);
            groups.filter(move |group| group.namespace == *namespace)
        });
        // A node with routes forwards to its neighbours' pods, even while it has no pods itself.
        let leads = scope != ServiceScope::Namespaces && self.site.is_some();
        let all = leads.then(|| self.groups("", scope)).into_iter().flatten();
        let own: BTreeSet<ObjectKey> = site.into_iter().chain(groups).chain(all).collect();
        own.into_iter().map(Arc::new).collect()
    }

    /// Selects the groups that it needs now; returns new ones and earlier ones.
    fn choose(&mut self, scope: ServiceScope) -> (Vec<Arc<ObjectKey>>, Vec<Arc<ObjectKey>>) {
        let own = self.own(scope);
        let mut added = own.to_vec();
        let mut removed = std::mem::replace(&mut self.own, own).into_vec();
        let namespaces: BTreeSet<String> = self.pods.values().map(|pod| pod.key.namespace.clone()).collect();
        for namespace in namespaces {
            let groups: Vec<Arc<ObjectKey>> = self.groups(&namespace, scope).map(Arc::new).collect();
            for pod in self.pods.values_mut().filter(|pod| pod.key.namespace == namespace) {
                let (before, mut rest): (Vec<_>, Vec<_>) =
                    pod.refs.iter().cloned().partition(|name| Kind::ServiceViews.is(name));
                removed.extend(before);
                added.extend(groups.iter().cloned());
                rest.extend(groups.iter().cloned());
                rest.sort_unstable();
                pod.refs = rest.into();
            }
        }
        (added, removed)
    }
}
