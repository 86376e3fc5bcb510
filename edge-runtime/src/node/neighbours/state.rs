//! Nodes of this LAN, as the bridge sent them.

use edge_protocol::message::ObjectKey;

use crate::config::NetworkConfig;
use crate::net::Subnet;
use crate::net::site::view::SITE_VIEW;
use crate::net::site::{SiteView, plan, routes};
use crate::node::context::Context;
use crate::store::{Store, StoreError};
use crate::sys::vec_map::VecMap;

#[derive(Debug, Default)]
pub(in crate::node) struct Neighbours {
    pub(super) enabled: bool,
    pub(super) node: String,
    pub(super) bridge: String,
    /// Views by site: two while the node moves from one to another.
    pub(super) views: VecMap<String, SiteView>,
    pub(super) changed: bool,
    /// Last logged messages, so that each is logged once.
    said: Vec<String>,
}

impl Neighbours {
    /// Reads the views of the store.
    ///
    /// # Errors
    /// SQLite fails.
    pub(in crate::node) fn open(network: &NetworkConfig, node: &str, store: &Store) -> Result<Self, StoreError> {
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

    /// The pod subnets that the cluster has assigned to this node; none before that, or if they cannot be used.
    pub(in crate::node) fn own_subnets(&self) -> Vec<Subnet> {
        let views: Vec<&SiteView> = self.views.values().collect();
        let links = routes::links(&self.bridge).unwrap_or_default();
        plan::own_subnets(&self.node, &views, &links).unwrap_or_default()
    }

    /// Handles an object of the bridge that has come, changed or gone; false if it is not a site.
    pub(in crate::node) fn take(&mut self, cx: &Context, key: &ObjectKey) -> bool {
        if key.kind != SITE_VIEW {
            return false;
        }
        if self.enabled {
            match cx.store.object(&key.kind, &key.namespace, &key.name) {
                Ok(body) => self.put(&key.name, body),
                // Its routes stay as they are.
                Err(error) => log::error!("{SITE_VIEW} {}: {error}", key.name),
            }
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

    pub(in crate::node) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Once for each thing that is wrong.
    pub(super) fn say(&mut self, cx: &mut Context, wrong: Vec<String>) -> Result<(), StoreError> {
        for text in wrong.iter().filter(|text| !self.said.contains(text)) {
            log::warn!("{text}");
            cx.node_event(true, "RoutesNotMade", text)?;
        }
        self.said = wrong;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::Report;

    use super::*;

    /// How often the node has reported a problem, by the text.
    fn told(cx: &Context) -> Vec<(String, u64)> {
        let rows = cx.store.outbox().unwrap().into_iter();
        let of = |report: Report| match report {
            Report::Event { event } => Some((event["message"].as_str()?.to_owned(), event["count"].as_u64()?)),
            _ => None,
        };
        rows.filter_map(|row| of(row.report)).collect()
    }

    #[test]
    fn problem_is_reported_when_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut neighbours = Neighbours::default();
        let no_link = || vec!["no link".to_owned()];
        neighbours.say(&mut cx, no_link()).unwrap();
        neighbours.say(&mut cx, no_link()).unwrap();
        assert_eq!(told(&cx), [("no link".to_owned(), 1)], "it goes on");
        neighbours.say(&mut cx, Vec::new()).unwrap();
        neighbours.say(&mut cx, no_link()).unwrap();
        assert_eq!(told(&cx), [("no link".to_owned(), 2)], "it is back");
    }

    #[test]
    fn node_without_routes_takes_sites_and_does_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(folder.path());
        let key = |kind: &str| ObjectKey { kind: kind.to_owned(), namespace: String::new(), name: "lan".to_owned() };
        let mut neighbours = Neighbours::default();
        assert!(neighbours.take(&cx, &key(SITE_VIEW)) && !neighbours.has_changed());
        neighbours.enabled = true;
        assert!(!neighbours.take(&cx, &key("Pod")) && !neighbours.has_changed());
        assert!(neighbours.take(&cx, &key(SITE_VIEW)) && neighbours.has_changed());
        neighbours.changed = false;
        cx.store.lose_table("objects");
        assert!(neighbours.take(&cx, &key(SITE_VIEW)) && !neighbours.has_changed(), "it cannot be read");
    }
}
