//! One watch of Services and one of EndpointSlices for a namespace, however many sites are told of them. Read in the bridge's
//! own name: no node may read the endpoints of others. Knows no node.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::{Pin, pin};
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

use super::object::{What, watch_failure};
use super::panics;
use super::resource::resource;
use crate::bridge::pod_references::{
    ALL_SERVICES, API_NAMESPACE, API_SERVICE, DNS_LABEL, DNS_NAMESPACE, DNS_SERVICE, group_and_site,
};
use crate::bridge::service_view::{service_of, service_view};
use crate::bridge::world::Told;
use apimachinery::well_known::PAGE;

/// Between two times that others are told of changes: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(200);

/// Namespace and name.
pub(super) type Name = (String, String);

type Events = Pin<Box<dyn Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send>>;

/// What is known of the Services.
#[derive(Clone, Default)]
pub(super) enum Known {
    #[default]
    Nothing,
    /// The API does not tell.
    Failed,
    /// It says that the bridge may not know.
    Refused,
    All(BTreeMap<Name, Arc<Entry>>),
}

/// A Service that nodes are told of, and its slices. The same value until something of it changes.
pub(super) struct Entry {
    pub(super) view: Arc<Told>,
    pub(super) slices: Vec<Arc<DynamicObject>>,
}

/// A watch that goes on as long as somebody holds it.
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

/// Those under way.
#[derive(Default)]
pub(super) struct ServiceWatches(HashMap<Name, Weak<ServiceWatch>>);

impl ServiceWatches {
    /// The watch for a group, begun in this round or later: what it says is no older than that.
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

/// Follows until aborted. The second part of the name says which Services: all of the namespace, or one that every pod may
/// use.
async fn follow(client: Client, of: Name, tell: watch::Sender<Known>) {
    let slices = ApiResource::erase::<EndpointSlice>(&());
    let [mut services, mut slices] =
        [(resource("Service", "services"), service_filter(&of)), (slices, slice_filter(&of))].map(
            |(resource, filter)| -> Events {
                let client = client.clone();
                let api: Api<DynamicObject> = match of.0.as_str() {
                    "" => Api::all_with(client, &resource),
                    namespace => Api::namespaced_with(client, namespace, &resource),
                };
                watcher(api, filter).default_backoff().boxed()
            },
        );
    let mut all = All::new(of);
    let mut said = Instant::now();
    loop {
        let due = pin!(sleep_until(said + PAUSE));
        let failure = tokio::select! {
            Some(event) = services.next() => all.services.take(event),
            Some(event) = slices.next() => all.slices.take(event),
            () = due, if all.is_due() => None,
            else => return,
        };
        match failure {
            Some(error) => {
                log::warn!("watching the Services of namespace {}: {error}", all.of.0);
                let refused = matches!(watch_failure(&error), What::Refused);
                tell.send_if_modified(|known| match (refused, &known) {
                    // What is known stays: an API server that has just been started refuses what it will allow.
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
            None if all.is_due() && Instant::now() >= said + PAUSE => {
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

/// One kind of object, by name, and which have changed since they were last looked at.
#[derive(Default)]
struct Watched {
    all: BTreeMap<Name, Arc<DynamicObject>>,
    listing: Option<BTreeMap<Name, Arc<DynamicObject>>>,
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
                self.changed.extend(old.values().chain(self.all.values()).filter_map(|object| service_of(object)));
                self.read = true;
            }
            Ok(Event::Apply(object)) => {
                self.changed.extend(service_of(&object));
                let old = self.all.insert(name(&object), slim(object));
                self.changed.extend(old.and_then(|old| service_of(&old)));
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
fn slim(mut object: DynamicObject) -> Arc<DynamicObject> {
    (object.metadata.managed_fields, object.metadata.annotations) = (None, None);
    Arc::new(object)
}

fn in_namespace(object: &DynamicObject, name: String) -> Name {
    (object.metadata.namespace.clone().unwrap_or_default(), name)
}

/// Everything that was read, and what came of it.
struct All {
    of: Name,
    services: Watched,
    slices: Watched,
    entries: BTreeMap<Name, Arc<Entry>>,
    /// It was told once: also that there is none is news.
    told: bool,
}

impl All {
    fn new(of: Name) -> Self {
        let (services, slices, entries) = Default::default();
        Self { of, services, slices, entries, told: false }
    }

    /// Whether there is something to tell, and all has been read.
    fn is_due(&self) -> bool {
        let changed = !self.services.changed.is_empty() || !self.slices.changed.is_empty();
        self.services.read && self.slices.read && (!self.told || changed)
    }

    fn now(&mut self) -> BTreeMap<Name, Arc<Entry>> {
        self.told = true;
        let mut changed = std::mem::take(&mut self.services.changed);
        changed.append(&mut self.slices.changed);
        let mut slices: BTreeMap<Name, Vec<Arc<DynamicObject>>> = BTreeMap::new();
        for slice in self.slices.all.values() {
            let service = service_of(slice).map(|name| in_namespace(slice, name));
            if let Some(name) = service.filter(|name| changed.contains(name)) {
                slices.entry(name).or_default().push(Arc::clone(slice));
            }
        }
        for name in changed {
            let service = self.services.all.get(&name).filter(|service| self.is_ours(service));
            match service.and_then(|service| service_view(service)) {
                Some(view) => {
                    // The same text as before stays the same object.
                    let old = self.entries.get(&name).map(|entry| &entry.view);
                    let same = old.filter(|old| old.digest == view.digest).map(Arc::clone);
                    let view = same.unwrap_or_else(|| Told::new(view));
                    let slices = slices.remove(&name).unwrap_or_default();
                    self.entries.insert(name, Arc::new(Entry { view, slices }));
                }
                None => drop(self.entries.remove(&name)),
            }
        }
        self.entries.clone()
    }

    /// The API's own Service and the cluster's DNS are groups of their own, and no part of their namespace's.
    fn is_ours(&self, service: &DynamicObject) -> bool {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let labels = service.metadata.labels.as_ref();
        let (namespace, group) = (&*self.of.0, &*self.of.1);
        if namespace.is_empty() {
            return true;
        }
        let alone = match namespace {
            API_NAMESPACE => name == API_SERVICE,
            DNS_NAMESPACE => labels.and_then(|labels| labels.get(DNS_LABEL.0)).is_some_and(|app| app == DNS_LABEL.1),
            _ => false,
        };
        alone == (group != ALL_SERVICES)
    }
}
