//! The group of Services that nodes receive, from what the API has of them and of their slices. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::DynamicObject;
use tokio::time::Instant;

use super::kept::{Seen, Watched};
use crate::bridge::endpoint_view::{SliceText, service_of};
use crate::bridge::name::Name;
use crate::bridge::service_view::{is_dns, service_view};
use crate::bridge::told::groups::{ALL_SERVICES, API_NAMESPACE, API_SERVICE, DNS_NAMESPACE};
use crate::bridge::world::Told;

/// Minimum interval between updates: changes in between are sent together.
const PAUSE: Duration = Duration::from_millis(200);
/// Memory of a Service or slice in addition to its text, in bytes.
const ENTRY: usize = 512;

/// A Service that nodes receive, and its slices. The same value until one of them changes.
pub(in crate::bridge::informers) struct Entry {
    pub(in crate::bridge::informers) view: Arc<Told>,
    pub(in crate::bridge::informers) slices: Vec<SliceText>,
}

/// The part of a Service that nodes get, as text: parsed, one with thousands of ports takes sixty times as much.
pub(super) struct Service {
    view: Option<Arc<Told>>,
    is_dns: bool,
}

impl Seen for Service {
    const KINDS: &'static str = "Services";

    fn of(service: DynamicObject) -> Self {
        Self { is_dns: is_dns(&service), view: service_view(&service).map(Told::new) }
    }

    fn service(&self, own: &Name) -> Option<Name> {
        Some(own.clone())
    }

    fn size(&self) -> usize {
        self.view.as_ref().map_or(ENTRY, |view| view.text().text().len() + ENTRY)
    }
}

/// An EndpointSlice. Controllers write them, for each Service with all of the pods that it selects.
pub(super) struct Slice {
    /// Name of its Service.
    service: Option<String>,
    text: SliceText,
}

impl Seen for Slice {
    const KINDS: &'static str = "EndpointSlices";

    fn of(slice: DynamicObject) -> Self {
        Self { service: service_of(&slice), text: SliceText::of(&slice) }
    }

    fn service(&self, own: &Name) -> Option<Name> {
        Some((own.0.clone(), self.service.clone()?))
    }

    fn size(&self) -> usize {
        self.text.size() + ENTRY
    }
}

/// Everything that was read, and the views of it.
pub(super) struct All {
    pub(super) of: Name,
    pub(super) services: Watched<Service>,
    pub(super) slices: Watched<Slice>,
    entries: BTreeMap<Name, Arc<Entry>>,
    /// Whether it was sent once: an empty group must be sent too.
    told: bool,
}

impl All {
    pub(super) fn new(of: Name) -> Self {
        Self { of, services: Watched::new(), slices: Watched::new(), entries: BTreeMap::new(), told: false }
    }

    /// When to send what has changed, once everything has been read. `said`: time of the last update, or of the start. The
    /// first one is sent at once, because pods wait for it.
    pub(super) fn due(&self, said: Instant) -> Option<Instant> {
        let changed = !self.services.changed.is_empty() || !self.slices.changed.is_empty();
        match self.services.read && self.slices.read {
            true if !self.told => Some(said),
            true if changed => Some(said + PAUSE),
            _ => None,
        }
    }

    pub(super) fn now(&mut self) -> BTreeMap<Name, Arc<Entry>> {
        self.told = true;
        let mut changed = std::mem::take(&mut self.services.changed);
        changed.append(&mut self.slices.changed);
        let mut slices: BTreeMap<Name, Vec<SliceText>> = BTreeMap::new();
        for (own, slice) in &self.slices.kept.all {
            if let Some(name) = slice.service(own).filter(|name| changed.contains(name)) {
                slices.entry(name).or_default().push(slice.text.clone());
            }
        }
        for name in changed {
            let service = self.services.kept.all.get(&name).filter(|service| self.is_ours(&name, service));
            match service.and_then(|service| service.view.as_ref()) {
                Some(view) => {
                    // An unchanged text stays the same object.
                    let old = self.entries.get(&name).map(|entry| &entry.view);
                    let view = Arc::clone(old.filter(|old| old.digest == view.digest).unwrap_or(view));
                    let slices = slices.remove(&name).unwrap_or_default();
                    self.entries.insert(name, Arc::new(Entry { view, slices }));
                }
                None => drop(self.entries.remove(&name)),
            }
        }
        self.entries.clone()
    }

    /// Whether the Service is in this group: the API's own Service and the cluster's DNS have groups of their own.
    fn is_ours(&self, (_, name): &Name, service: &Service) -> bool {
        let (namespace, group) = (&*self.of.0, &*self.of.1);
        if namespace.is_empty() {
            return true;
        }
        let alone = match namespace {
            API_NAMESPACE => name == API_SERVICE,
            DNS_NAMESPACE => service.is_dns,
            _ => false,
        };
        alone == (group != ALL_SERVICES)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::super::kept::ROOM;
    use super::*;

    fn service(name: &str, ports: usize) -> DynamicObject {
        let ports: Vec<Value> = (0..ports).map(|n| json!({"name": format!("port-{n}"), "port": n + 1})).collect();
        let spec = json!({"clusterIP": "10.96.0.7", "ports": ports});
        let metadata = json!({"name": name, "namespace": "shop", "uid": name});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn slice(name: &str, endpoints: usize, address: &str) -> DynamicObject {
        let endpoints = vec![json!({"addresses": [address], "nodeName": "site-north-1-board-7"}); endpoints];
        let metadata = json!({"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}});
        let slice = json!({"metadata": metadata, "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints});
        serde_json::from_value(slice).unwrap()
    }

    /// Lists slices of the Service `web`.
    fn list(all: &mut All, slices: impl Iterator<Item = DynamicObject>) {
        all.slices.take(Ok(Event::Init));
        slices.for_each(|slice| drop(all.slices.take(Ok(Event::InitApply(slice)))));
        all.slices.take(Ok(Event::InitDone));
    }

    #[test]
    fn first_services_are_told_at_once_and_later_changes_together() {
        let mut all = All::new(("shop".into(), ALL_SERVICES.into()));
        let said = Instant::now();
        for event in [Event::Init, Event::InitApply(service("web", 1)), Event::InitDone] {
            all.services.take(Ok(event));
        }
        assert_eq!(all.due(said), None, "slices have not been read");
        list(&mut all, std::iter::empty());
        assert_eq!(all.due(said), Some(said), "pods wait for them");
        all.now();
        assert_eq!(all.due(said), None);
        all.services.take(Ok(Event::Apply(service("web", 2))));
        assert_eq!(all.due(said), Some(said + PAUSE));
    }

    #[test]
    fn slices_of_a_namespace_have_a_bounded_room() {
        let mut all = All::new(("shop".into(), ALL_SERVICES.into()));
        for event in [Event::Init, Event::InitApply(service("web", 1)), Event::InitDone] {
            all.services.take(Ok(event));
        }
        let large = "x".repeat(1 << 20);
        list(&mut all, (0..10).map(|n| slice(&n.to_string(), 1, &large)));
        let web = ("shop".to_owned(), "web".to_owned());
        assert_eq!(all.now()[&web].slices.len(), 7, "the Service stays, with the endpoints that have room");
        assert!(!all.slices.wants_reading);
        all.slices.take(Ok(Event::Delete(slice("0", 1, &large))));
        assert!(std::mem::take(&mut all.slices.wants_reading) && all.now()[&web].slices.len() == 6);
        list(&mut all, (1..10).map(|n| slice(&n.to_string(), 1, &large)));
        assert_eq!(all.now()[&web].slices.len(), 7);
        list(&mut all, (1..3).map(|n| slice(&n.to_string(), 1, &large)));
        all.slices.take(Ok(Event::Delete(slice("1", 1, &large))));
        assert!(!all.slices.wants_reading, "all have room");
    }

    #[test]
    fn thousand_services_of_ten_endpoints_have_room() {
        let mut all = All::new(("shop".into(), ALL_SERVICES.into()));
        list(&mut all, (0..1000).map(|n| slice(&format!("web-{n}"), 10, "10.86.112.34")));
        let kept = &all.slices.kept;
        assert!(kept.all.len() == 1000 && kept.used("shop") < ROOM / 4, "{} bytes", kept.used("shop"));
    }

    #[test]
    fn services_of_a_namespace_have_a_bounded_room() {
        let mut all = All::new(("shop".into(), ALL_SERVICES.into()));
        for slices in [Event::Init, Event::InitDone] {
            all.slices.take(Ok(slices));
        }
        all.services.take(Ok(Event::Init));
        (0..30).for_each(|n| drop(all.services.take(Ok(Event::InitApply(service(&n.to_string(), 10_000))))));
        all.services.take(Ok(Event::InitDone));
        let told = all.now();
        let bytes: usize = told.values().map(|entry| entry.view.text().text().len()).sum();
        assert!(told.len() > 10 && told.len() < 30 && bytes <= ROOM, "{} Services, {bytes} bytes", told.len());
        let gone: Vec<Name> = told.keys().take(2).cloned().collect();
        gone.iter().for_each(|(_, name)| drop(all.services.take(Ok(Event::Delete(service(name, 1))))));
        all.services.take(Ok(Event::Apply(service("new", 10_000))));
        let now = all.now();
        assert!(now.contains_key(&("shop".into(), "new".into())) && now.len() == told.len() - 1);
        all.services.take(Ok(Event::Apply(service("new", 1))));
        all.services.take(Ok(Event::Apply(service("other", 10_000))));
        assert_eq!(all.now().len(), told.len(), "a smaller one gives its room back");
    }

    #[test]
    fn services_without_room_are_read_again_when_others_go() {
        let mut services = Watched::<Service>::new();
        services.take(Ok(Event::Init));
        (0..30).for_each(|n| drop(services.take(Ok(Event::InitApply(service(&n.to_string(), 10_000))))));
        services.take(Ok(Event::InitDone));
        services.take(Ok(Event::Apply(service("more", 10_000))));
        assert!(!services.wants_reading, "there is no more room than before");
        services.take(Ok(Event::Delete(service("0", 1))));
        assert!(std::mem::take(&mut services.wants_reading));
        services.take(Ok(Event::Init));
        services.take(Ok(Event::InitApply(service("1", 10_000))));
        services.take(Ok(Event::InitDone));
        services.take(Ok(Event::Delete(service("1", 1))));
        assert!(!services.wants_reading, "all have room");
    }
}
