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
mod tests;
