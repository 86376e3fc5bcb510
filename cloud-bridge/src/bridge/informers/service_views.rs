//! The Services of a namespace, or of all, as nodes see them, read in the bridge's own name: no node may read the endpoints of others.
//! One watch of Services and one of EndpointSlices, however many nodes want to know.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::ObjectKey;
use futures::{Stream, StreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::object::{News, What, watch_failure};
use super::resource::resource;
use crate::bridge::pod_references::{
    ALL_SERVICES, API_NAMESPACE, API_SERVICE, DNS_LABEL, DNS_NAMESPACE, DNS_SERVICE, ENDPOINT_VIEW, SERVICE_VIEW,
};
use crate::bridge::service_view::{endpoint_view, service_of, service_view};
use crate::bridge::world::{Group, Told};

/// Between two times that nodes are told of a group's changes: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(200);

type Events = Pin<Box<dyn Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send>>;

/// Follows until aborted. The key's name says which Services: all of the namespace, or one that every pod may use.
pub(super) async fn watch_service_views(client: Client, key: ObjectKey, watch: u64, news: mpsc::Sender<News>) {
    let slices = ApiResource::erase::<EndpointSlice>(&());
    let [mut services, mut slices] =
        [(resource("Service", "services"), service_filter(&key)), (slices, slice_filter(&key))].map(
            |(resource, filter)| -> Events {
                let client = client.clone();
                let api: Api<DynamicObject> = match key.namespace.as_str() {
                    "" => Api::all_with(client, &resource),
                    namespace => Api::namespaced_with(client, namespace, &resource),
                };
                watcher(api, filter).default_backoff().boxed()
            },
        );
    let mut group = Views::new(&key);
    let mut said = Instant::now();
    loop {
        let told = pin!(sleep_until(said + PAUSE));
        let failure = tokio::select! {
            biased;
            Some(event) = services.next() => group.services.take(event),
            Some(event) = slices.next() => group.slices.take(event),
            () = told, if group.is_due() => None,
            else => return,
        };
        let what = match failure {
            Some(error) => {
                log::warn!("watching the Services of namespace {}: {error}", key.namespace);
                // Without the right to read them nodes have none.
                match watch_failure(&error) {
                    What::Refused => What::Group(Group::new()),
                    other => other,
                }
            }
            None if group.is_due() && Instant::now() >= said + PAUSE => What::Group(group.now()),
            None => continue,
        };
        said = Instant::now();
        if news.send(News { key: key.clone(), watch, what }).await.is_err() {
            return;
        }
    }
}

fn service_filter(key: &ObjectKey) -> watcher::Config {
    let all = watcher::Config::default();
    match (key.namespace.as_str(), key.name.as_str()) {
        (API_NAMESPACE, API_SERVICE) => all.fields(&format!("metadata.name={API_SERVICE}")),
        (DNS_NAMESPACE, DNS_SERVICE) => all.labels(&format!("{}={}", DNS_LABEL.0, DNS_LABEL.1)),
        _ => all,
    }
}

fn slice_filter(key: &ObjectKey) -> watcher::Config {
    let of = |service: &str| watcher::Config::default().labels(&format!("kubernetes.io/service-name={service}"));
    match key.name.as_str() {
        ALL_SERVICES => watcher::Config::default(),
        name => of(name),
    }
}

/// Namespace and name.
type Name = (String, String);

/// One kind of object, by name, and which have changed since they were last looked at.
#[derive(Default)]
struct Watched {
    all: BTreeMap<Name, DynamicObject>,
    listing: Option<BTreeMap<Name, DynamicObject>>,
    /// A list has been read.
    read: bool,
    /// Names of Services.
    changed: BTreeSet<Name>,
}

impl Watched {
    /// An error, if that is what came.
    fn take(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) -> Option<watcher::Error> {
        let name = |object: &DynamicObject| in_namespace(object, object.metadata.name.clone().unwrap_or_default());
        let service_of = |object: &DynamicObject| Some(in_namespace(object, service_of(object)?));
        match event {
            Ok(Event::Init) => self.listing = Some(BTreeMap::new()),
            Ok(Event::InitApply(object)) => {
                self.listing.get_or_insert_default().insert(name(&object), slim(object));
            }
            Ok(Event::InitDone) => {
                let listed = self.listing.take().unwrap_or_default();
                let old = std::mem::replace(&mut self.all, listed);
                self.changed.extend(old.values().chain(self.all.values()).filter_map(service_of));
                self.read = true;
            }
            Ok(Event::Apply(object)) => {
                self.changed.extend(service_of(&object));
                let old = self.all.insert(name(&object), slim(object));
                self.changed.extend(old.as_ref().and_then(service_of));
            }
            Ok(Event::Delete(object)) => {
                self.changed.extend(service_of(&object));
                self.all.remove(&name(&object));
            }
            Err(error) => return Some(error),
        }
        None
    }
}

/// Without what nobody here reads.
fn slim(mut object: DynamicObject) -> DynamicObject {
    (object.metadata.managed_fields, object.metadata.annotations) = (None, None);
    object
}

fn in_namespace(object: &DynamicObject, name: String) -> Name {
    (object.metadata.namespace.clone().unwrap_or_default(), name)
}

/// What nodes are told of a namespace, or of all.
struct Views {
    key: ObjectKey,
    services: Watched,
    slices: Watched,
    said: Group,
    /// It was told once: also that there is none is news.
    first: bool,
}

impl Views {
    fn new(key: &ObjectKey) -> Self {
        let (services, slices) = Default::default();
        Self { key: key.clone(), services, slices, said: Group::new(), first: true }
    }

    /// Whether there is something to tell, and all has been read.
    fn is_due(&self) -> bool {
        let changed = !self.services.changed.is_empty() || !self.slices.changed.is_empty();
        self.services.read && self.slices.read && (self.first || changed)
    }

    fn now(&mut self) -> Group {
        self.first = false;
        let mut changed = std::mem::take(&mut self.services.changed);
        changed.append(&mut self.slices.changed);
        for (namespace, name) in changed {
            let at = (namespace, name);
            let service = self.services.all.get(&at).filter(|service| self.is_ours(service));
            let (namespace, name) = at;
            let of_it = |(key, slice): &(&Name, &DynamicObject)| {
                key.0 == namespace && service_of(slice).as_deref() == Some(&*name)
            };
            let slices = self.slices.all.iter().filter(of_it).map(|(_, slice)| slice);
            let views = [
                (SERVICE_VIEW, service.and_then(service_view)),
                (ENDPOINT_VIEW, service.and_then(|service| endpoint_view(service, slices))),
            ];
            for (kind, object) in views {
                let key = ObjectKey { kind: kind.into(), namespace: namespace.clone(), name: name.clone() };
                match object {
                    Some(object) if self.said.get(&key).is_some_and(|said| said.digest == object.digest) => {}
                    Some(object) => drop(self.said.insert(key, Told::new(object))),
                    None => drop(self.said.remove(&key)),
                }
            }
        }
        self.said.iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }

    /// The API's own Service and the cluster's DNS are groups of their own, and no part of their namespace's.
    fn is_ours(&self, service: &DynamicObject) -> bool {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let labels = service.metadata.labels.as_ref();
        if self.key.namespace.is_empty() {
            return true;
        }
        let alone = match self.key.namespace.as_str() {
            API_NAMESPACE => name == API_SERVICE,
            DNS_NAMESPACE => labels.and_then(|labels| labels.get(DNS_LABEL.0)).is_some_and(|app| app == DNS_LABEL.1),
            _ => false,
        };
        alone == (self.key.name != ALL_SERVICES)
    }
}
