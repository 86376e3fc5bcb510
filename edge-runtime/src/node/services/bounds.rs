//! Services that are too large for this node: finds them, reduces them, and reports them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Services;
use crate::net::services::bounds::{Weight, beyond};
use crate::net::services::outside::Outside;
use crate::net::services::table::ServiceName;
use crate::net::services::{EndpointView, ServiceView};
use crate::node::context::Context;
use crate::store::StoreError;
use crate::sys::gather::Gather;

/// Endpoints of a Service without slices.
static NONE: EndpointView = EndpointView { slices: Vec::new() };
/// Services of which one look tells with events; of more the last are in the log alone.
const TOLD_AT_MOST: usize = 20;

impl Services {
    /// Finds the Services that are too large by now.
    pub(super) fn look_at_bounds(&mut self) {
        let now = self.beyond_now();
        let old = std::mem::replace(&mut self.beyond, now);
        let other = |name: &&ServiceName| old.contains_key(*name) != self.beyond.contains_key(*name);
        let changed: Vec<ServiceName> = old.keys().chain(self.beyond.keys()).filter(other).cloned().collect();
        for name in &changed {
            // The owner of an outside address may depend on it.
            let outside = self.views.get(name).into_iter().flat_map(ServiceView::outside).copied().into_set();
            self.look_at_outside(&outside);
        }
        self.names_changed |= !changed.is_empty();
        self.untold.add(changed.iter().cloned());
        self.dirty.extend(changed);
    }

    /// Tells of those that have become too large since the last time.
    pub(super) fn tell_bounds(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        self.beyond_told.retain(|name| self.beyond.contains_key(name));
        let mut told = 0;
        for (name, why) in &self.beyond {
            if !self.beyond_told.insert(name.clone()) {
                continue;
            }
            let (namespace, name) = name;
            let text =
                format!("Service {namespace}/{name} is too large for this node, which refuses its connections: {why}");
            log::error!("{text}");
            if told < TOLD_AT_MOST {
                cx.node_event(true, "ServicesLeftOut", &text)?;
            }
            told += 1;
        }
        Ok(())
    }

    fn beyond_now(&self) -> BTreeMap<ServiceName, String> {
        beyond(self.views.iter().map(|(name, view)| {
            let others = self.others.get(name).unwrap_or(&NONE);
            (name, Weight::of(&name.0, view, self.pods.values(), others))
        }))
    }

    /// A Service as this node takes it, with its endpoints that are not pods of this node.
    pub(super) fn taken(&self, name: &ServiceName) -> Option<(Cow<'_, ServiceView>, &EndpointView)> {
        let view = self.views.get(name)?;
        Some(match self.beyond.contains_key(name) {
            true => (Cow::Owned(view.bare()), &NONE),
            false => (Cow::Borrowed(view), self.others.get(name).unwrap_or(&NONE)),
        })
    }

    /// Assignment of outside addresses, without Services that are too large.
    pub(super) fn outside(&self) -> Outside<'_> {
        let served = self.views.iter().filter(|(name, _)| !self.beyond.contains_key(*name));
        Outside::new(served, &self.inside(), &self.link)
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::ObjectKey;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::ServicesConfig;
    use crate::net::services::view::SERVICE_VIEW;
    use crate::net::services::{Here, Tables};
    use crate::store::Store;

    fn put(services: &mut Services, ports: u16) {
        let key = ObjectKey { kind: SERVICE_VIEW.into(), namespace: "ns".into(), name: "web".into() };
        let ports: Vec<Value> = (1..=ports).map(|port| json!({ "port": port })).collect();
        services.put(&key, Some(json!({"spec": {"clusterIPs": ["10.96.0.7"], "ports": ports}})));
        services.dirty.clear();
        services.names_changed = false;
        services.look_at_bounds();
    }

    #[test]
    fn service_that_is_too_large_keeps_only_its_address() {
        let store = Store::in_memory().unwrap();
        let tables = Tables::new("b0", &[]);
        let mut services = Services::open(&ServicesConfig::default(), tables, Here::default(), &store).unwrap();
        let name = ("ns".to_owned(), "web".to_owned());
        let ports = |services: &Services| services.taken(&name).map(|(view, _)| view.ports.len());
        put(&mut services, 250);
        assert_eq!((ports(&services), services.dirty.len(), services.names_changed), (Some(250), 0, false));
        put(&mut services, 251);
        assert_eq!((ports(&services), services.dirty.len(), services.names_changed), (Some(0), 1, true));
        put(&mut services, 252);
        assert_eq!((ports(&services), services.dirty.len()), (Some(0), 0), "it was too large before");
        put(&mut services, 1);
        assert_eq!((ports(&services), services.dirty.len()), (Some(1), 1));
        let other = ("ns".to_owned(), "other".to_owned());
        assert!(services.taken(&other).is_none());
    }

    #[test]
    fn service_that_is_too_large_is_told_once() {
        let (_folder, mut cx) = Context::in_a_folder();
        let store = Store::in_memory().unwrap();
        let tables = Tables::new("b0", &[]);
        let mut services = Services::open(&ServicesConfig::default(), tables, Here::default(), &store).unwrap();
        put(&mut services, 251);
        for _ in 0..2 {
            services.tell_bounds(&mut cx).unwrap();
            assert_eq!((cx.store.outbox().unwrap().len(), services.beyond_told.len()), (1, 1));
        }
        put(&mut services, 1);
        services.tell_bounds(&mut cx).unwrap();
        assert!(services.beyond_told.is_empty(), "the next time is another one");
    }
}
