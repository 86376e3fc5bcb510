//! One watch of Services and one of EndpointSlices for a namespace, shared by all sites. In the bridge's own name: no
//! node may read the endpoints of others. Knows no node.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use edge_protocol::message::ObjectKey;
use futures::{Stream, StreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::news::{What, watch_failure};
use crate::bridge::endpoint_view::{SliceText, service_of};
use crate::bridge::name::{Name, name_of};
use crate::bridge::resource::resource;
use crate::bridge::service_view::{is_dns, service_view};
use crate::bridge::told::groups::{
    ALL_SERVICES, API_NAMESPACE, API_SERVICE, DNS_LABEL, DNS_NAMESPACE, DNS_SERVICE, group_and_site,
};
use crate::bridge::world::Told;
use apimachinery::well_known::PAGE;
use apimachinery::{pace, panics};

/// Minimum interval between updates: changes in between are sent together.
const PAUSE: Duration = Duration::from_millis(200);
/// Limit in bytes for the Services of one namespace, and another for its EndpointSlices, because tenants cause both.
/// 1,000 slices of 10 endpoints take less than 2 MiB; full slices have room for 60,000 endpoints.
const ROOM: usize = 8 << 20;
/// Interval at which all Services, or all slices, are read again because some had no room.
const AGAIN: Duration = Duration::from_secs(30);
/// Memory of a Service or slice in addition to its text, in bytes.
const ENTRY: usize = 512;

type Events = Pin<Box<dyn Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send>>;

/// The known Services.
#[derive(Clone, Default)]
pub(super) enum Known {
    #[default]
    Nothing,
    /// The API does not answer.
    Failed,
    /// The API refuses to list them to the bridge.
    Refused,
    All(BTreeMap<Name, Arc<Entry>>),
}

/// A Service that nodes receive, and its slices. The same value until one of them changes.
pub(super) struct Entry {
    pub(super) view: Arc<Told>,
    pub(super) slices: Vec<SliceText>,
}

/// A watch that runs as long as a task holds it.
pub(super) struct ServiceWatch {
    /// The round of readings in which it was started.
    round: u64,
    known: watch::Receiver<Known>,
    task: JoinHandle<()>,
}

impl ServiceWatch {
    pub(super) fn known(&self) -> watch::Receiver<Known> {
        self.known.clone()
    }
}

impl Drop for ServiceWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The running watches.
#[derive(Default)]
pub(super) struct ServiceWatches(HashMap<Name, Weak<ServiceWatch>>);

impl ServiceWatches {
    /// The watch for a group, started in this round or later, so that its answers are of this round or later.
    pub(super) fn get(&mut self, client: &Client, key: &ObjectKey, round: u64) -> Arc<ServiceWatch> {
        self.0.retain(|_, watch| watch.strong_count() > 0);
        let name = (key.namespace.clone(), group_and_site(&key.name).0.to_owned());
        if let Some(found) = self.0.get(&name).and_then(Weak::upgrade).filter(|found| found.round >= round) {
            return found;
        }
        let (sender, known) = watch::channel(Known::Nothing);
        let about = format!("the watch of Services of namespace {}", name.0);
        let (client, of) = (client.clone(), name.clone());
        let task = tokio::spawn(async move {
            panics::keep(&about, move || follow(client.clone(), of.clone(), sender.clone())).await;
        });
        let watch = Arc::new(ServiceWatch { round, known, task });
        self.0.insert(name, Arc::downgrade(&watch));
        watch
    }
}

/// Follows until aborted. The second part of the name says which Services: all of the namespace, or one that every pod
/// may use.
async fn follow(client: Client, of: Name, tell: watch::Sender<Known>) {
    let namespace = of.0.clone();
    let read = |kind: ApiResource, filter: watcher::Config| -> Events {
        let client = client.clone();
        let api: Api<DynamicObject> = match namespace.as_str() {
            "" => Api::all_with(client, &kind),
            namespace => Api::namespaced_with(client, namespace, &kind),
        };
        watcher(api, filter).default_backoff().boxed()
    };
    let mut services = read(resource("v1", "Service", "services"), service_filter(&of));
    let mut slices = read(ApiResource::erase::<EndpointSlice>(&()), slice_filter(&of));
    let mut again = Instant::now() + AGAIN;
    let mut all = All::new(of);
    let mut said = Instant::now();
    loop {
        let due = all.due(said);
        let failure = tokio::select! {
            Some(event) = services.next() => all.services.take(event),
            Some(event) = slices.next() => all.slices.take(event),
            () = pace::sleep_until(due), if due.is_some() => None,
            () = sleep_until(again), if all.services.wants_reading || all.slices.wants_reading => {
                if std::mem::take(&mut all.services.wants_reading) {
                    services = read(resource("v1", "Service", "services"), service_filter(&all.of));
                }
                if std::mem::take(&mut all.slices.wants_reading) {
                    slices = read(ApiResource::erase::<EndpointSlice>(&()), slice_filter(&all.of));
                }
                again = Instant::now() + AGAIN;
                continue;
            }
            else => return,
        };
        match failure {
            Some(error) => {
                log::warn!("watching the Services of namespace {}: {error}", all.of.0);
                let refused = matches!(watch_failure(&error), What::Refused);
                tell.send_if_modified(|known| match (refused, &known) {
                    // Known Services stay: an API server that has just started refuses requests that it will allow.
                    (_, Known::All(_)) => false,
                    (true, _) => {
                        *known = Known::Refused;
                        true
                    }
                    (false, Known::Nothing) => {
                        *known = Known::Failed;
                        true
                    }
                    (false, _) => false,
                });
            }
            None if all.due(said).is_some_and(|due| due <= Instant::now()) => {
                tell.send_replace(Known::All(all.now()));
            }
            None => continue,
        }
        said = Instant::now();
    }
}

fn service_filter(of: &Name) -> watcher::Config {
    let all = watcher::Config::default().page_size(PAGE);
    match (of.0.as_str(), of.1.as_str()) {
        (API_NAMESPACE, API_SERVICE) => all.fields(&format!("metadata.name={API_SERVICE}")),
        (DNS_NAMESPACE, DNS_SERVICE) => all.labels(&format!("{}={}", DNS_LABEL.0, DNS_LABEL.1)),
        _ => all,
    }
}

fn slice_filter(of: &Name) -> watcher::Config {
    match of.1.as_str() {
        ALL_SERVICES => watcher::Config::default().page_size(PAGE),
        service => watcher::Config::default().page_size(PAGE).labels(&format!("kubernetes.io/service-name={service}")),
    }
}

/// Objects of one kind by name, and the changed ones since the last update.
struct Watched<T> {
    kept: Kept<T>,
    listing: Option<Kept<T>>,
    /// A list has been read.
    read: bool,
    /// Whether some had no room, and there is more of it now.
    wants_reading: bool,
    /// Names of Services.
    changed: BTreeSet<Name>,
}

impl<T: Seen> Watched<T> {
    fn new() -> Self {
        Self { kept: Kept::new(), listing: None, read: false, wants_reading: false, changed: BTreeSet::new() }
    }

    /// Takes an event; returns its error, if it is one.
    fn take(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) -> Option<watcher::Error> {
        let name = |object: &DynamicObject| name_of(&object.metadata);
        match event {
            Ok(Event::Init) => self.listing = Some(Kept::new()),
            Ok(Event::InitApply(object)) => {
                self.listing.get_or_insert_with(Kept::new).put(name(&object), T::of(object));
            }
            Ok(Event::InitDone) => {
                let listed = self.listing.take().unwrap_or_else(Kept::new);
                let old = std::mem::replace(&mut self.kept, listed);
                self.changed.extend(old.services().chain(self.kept.services()));
                self.read = true;
            }
            Ok(Event::Apply(object)) => {
                let (name, object) = (name(&object), T::of(object));
                let before = self.kept.used(&name.0);
                self.changed.extend(object.service(&name));
                self.changed.extend(self.kept.put(name.clone(), object));
                self.look_for_room(&name.0, before);
            }
            Ok(Event::Delete(object)) => {
                let name = name(&object);
                let before = self.kept.used(&name.0);
                self.changed.extend(self.kept.remove(&name));
                self.look_for_room(&name.0, before);
            }
            Err(error) => return Some(error),
        }
        None
    }

    /// Requests a new list if the namespace was beyond its limit, and takes less room than before.
    fn look_for_room(&mut self, namespace: &str, before: usize) {
        self.wants_reading |= self.kept.over.contains(namespace) && self.kept.used(namespace) < before;
    }
}

/// An object, with the parts that are used here.
trait Seen {
    /// Plural of the kind, for messages.
    const KINDS: &'static str;

    fn of(object: DynamicObject) -> Self;

    /// The name of its Service.
    fn service(&self, own: &Name) -> Option<Name>;

    /// Size in bytes, counted for its namespace.
    fn size(&self) -> usize;
}

/// The part of a Service that nodes get, as text: parsed, one with thousands of ports takes sixty times as much.
struct Service {
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
struct Slice {
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

/// Objects of one kind, limited in size for each namespace.
struct Kept<T> {
    all: BTreeMap<Name, T>,
    /// Bytes in use by namespace.
    used: BTreeMap<String, usize>,
    /// Namespaces beyond their limit.
    over: BTreeSet<String>,
}

impl<T: Seen> Kept<T> {
    fn new() -> Self {
        Self { all: BTreeMap::new(), used: BTreeMap::new(), over: BTreeSet::new() }
    }

    fn used(&self, namespace: &str) -> usize {
        self.used.get(namespace).copied().unwrap_or_default()
    }

    /// Stores a new state, if there is room, and returns the Service of the old one. An object without room is tried
    /// again when it changes, or when all are listed.
    fn put(&mut self, name: Name, object: T) -> Option<Name> {
        let old = self.remove(&name);
        let used = self.used(&name.0) + object.size();
        if used <= ROOM {
            self.used.insert(name.0.clone(), used);
            self.all.insert(name, object);
        } else if self.over.insert(name.0.clone()) {
            let kinds = T::KINDS;
            log::warn!("{kinds} of namespace {} take more than {ROOM} bytes: nodes do not know the others", name.0);
        }
        old
    }

    fn remove(&mut self, name: &Name) -> Option<Name> {
        let object = self.all.remove(name)?;
        if let Some(used) = self.used.get_mut(&name.0) {
            *used = used.saturating_sub(object.size());
        }
        object.service(name)
    }

    /// The Services of these objects.
    fn services(&self) -> impl Iterator<Item = Name> {
        self.all.iter().filter_map(|(name, object)| object.service(name))
    }
}

/// Everything that was read, and the views of it.
struct All {
    of: Name,
    services: Watched<Service>,
    slices: Watched<Slice>,
    entries: BTreeMap<Name, Arc<Entry>>,
    /// Whether it was sent once: an empty group must be sent too.
    told: bool,
}

impl All {
    fn new(of: Name) -> Self {
        Self { of, services: Watched::new(), slices: Watched::new(), entries: BTreeMap::new(), told: false }
    }

    /// When to send what has changed, once everything has been read. `said`: time of the last update, or of the start. The
    /// first one is sent at once, because pods wait for it.
    fn due(&self, said: Instant) -> Option<Instant> {
        let changed = !self.services.changed.is_empty() || !self.slices.changed.is_empty();
        match self.services.read && self.slices.read {
            true if !self.told => Some(said),
            true if changed => Some(said + PAUSE),
            _ => None,
        }
    }

    fn now(&mut self) -> BTreeMap<Name, Arc<Entry>> {
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
    use serde_json::{Value, json};

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
