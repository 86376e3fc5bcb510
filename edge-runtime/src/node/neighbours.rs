//! Nodes of this LAN to whose pods this node has routes, and the subnets that the cluster has given its own pods. What is
//! decided is in [`crate::net::site`].

use std::collections::BTreeMap;

use edge_protocol::message::ObjectKey;

use super::Node;
use super::context::Context;
use crate::config::NetworkConfig;
use crate::net::Subnet;
use crate::net::site::view::SITE_VIEW;
use crate::net::site::{Plan, SiteView, plan, routes};
use crate::store::{Store, StoreError};

#[derive(Debug, Default)]
pub(super) struct Neighbours {
    enabled: bool,
    node: String,
    bridge: String,
    /// By site: two while the node moves from one to another.
    views: BTreeMap<String, SiteView>,
    changed: bool,
    /// What was said last, so that it is said once.
    said: Vec<String>,
}

impl Neighbours {
    /// Reads the views of the store.
    ///
    /// # Errors
    /// SQLite fails.
    pub(super) fn open(network: &NetworkConfig, node: &str, store: &Store) -> Result<Self, StoreError> {
        let (enabled, node, bridge) = (network.has_routes(), node.to_owned(), network.bridge.clone());
        let mut neighbours = Self { enabled, node, bridge, ..Self::default() };
        if enabled {
            for key in store.held()?.into_iter().map(|digest| digest.key).filter(|key| key.kind == SITE_VIEW) {
                let body = store.object(&key.kind, &key.namespace, &key.name)?;
                neighbours.put(&key.name, body);
            }
        }
        Ok(neighbours)
    }

    /// The subnets that the cluster has given this node's pods; none if it has not, or none that can be used.
    pub(super) fn own_subnets(&self) -> Vec<Subnet> {
        let views: Vec<&SiteView> = self.views.values().collect();
        let links = routes::links(&self.bridge).unwrap_or_default();
        plan::own_subnets(&self.node, &views, &links).unwrap_or_default()
    }

    /// An object of the bridge has come, changed or gone; false if it is no site.
    pub(super) fn take(&mut self, cx: &Context, key: &ObjectKey) -> bool {
        if key.kind != SITE_VIEW {
            return false;
        }
        if self.enabled {
            let body = cx.store.object(&key.kind, &key.namespace, &key.name);
            let body = body.unwrap_or_else(|error| {
                log::error!("{SITE_VIEW} {}: {error}", key.name);
                None
            });
            self.put(&key.name, body);
        }
        true
    }

    fn put(&mut self, site: &str, body: Option<serde_json::Value>) {
        let unreadable = |error| log::error!("{SITE_VIEW} {site} is left out: {error}");
        match body.and_then(|body| SiteView::read(&body).map_err(unreadable).ok()) {
            Some(view) => drop(self.views.insert(site.to_owned(), view)),
            None => drop(self.views.remove(site)),
        }
        self.changed = true;
    }

    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Once for each thing that is wrong.
    fn say(&mut self, cx: &mut Context, wrong: Vec<String>) -> Result<(), StoreError> {
        for text in wrong.iter().filter(|text| !self.said.contains(text)) {
            log::warn!("{text}");
            cx.node_event(true, "RoutesNotMade", text)?;
        }
        self.said = wrong;
        Ok(())
    }
}

impl Node {
    /// Has routes, rules and Services follow what is known of the neighbours and of this node's links. Also what others have
    /// taken away comes back: the kernel forgets the routes of a link that goes down.
    pub(super) fn follow_neighbours(&mut self) -> Result<(), StoreError> {
        if !self.neighbours.enabled {
            return Ok(());
        }
        self.neighbours.changed = false;
        let links = match routes::links(&self.neighbours.bridge) {
            Ok(links) => links,
            Err(error) => {
                log::error!("addresses of this node's links: {error}");
                return Ok(());
            }
        };
        let views: Vec<&SiteView> = self.neighbours.views.values().collect();
        let given = plan::own_subnets(&self.neighbours.node, &views, &links);
        let own = self.cx.config.network.subnets.clone();
        let (plan, mut wrong) = Plan::of(&self.neighbours.node, &views, &own, &links);
        match given {
            Ok(given) if !given.is_empty() && given != own => {
                let text = |all: &[Subnet]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                log::info!("the cluster gives this node's pods {} (they had: {})", text(&given), text(&own));
                self.again = true;
            }
            Ok(_) => {}
            Err(why) => wrong.push(why),
        }
        if let Err(error) = routes::hold(&plan) {
            wrong.push(format!("routes to the pods of neighbours: {error}"));
        }
        if self.launch.sandboxes.teardown.network.set_neighbours(plan.ranges()) {
            self.host_ports.renew();
            self.replace_rules();
        }
        self.services.set_reach(plan);
        let Self { neighbours, cx, .. } = self;
        neighbours.say(cx, wrong)
    }
}
