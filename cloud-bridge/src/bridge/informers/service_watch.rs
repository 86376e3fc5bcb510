//! One watch of Services and one of EndpointSlices for a namespace, shared by all sites. In the bridge's own name: no
//! node may read the endpoints of others. Knows no node.
//!
//! | file | owns |
//! |---|---|
//! | `kept` | what was read, within a bounded room |
//! | `group` | the group that nodes receive of it |

mod group;
mod kept;

use std::collections::{BTreeMap, HashMap};
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
use crate::bridge::name::Name;
use crate::bridge::resource::resource;
use crate::bridge::told::groups::{
    ALL_SERVICES, API_NAMESPACE, API_SERVICE, DNS_LABEL, DNS_NAMESPACE, DNS_SERVICE, group_and_site,
};
use crate::bridge::world::Round;
use apimachinery::well_known::PAGE;
use apimachinery::{pace, panics};
use group::All;

pub(super) use group::Entry;

/// Interval at which all Services, or all slices, are read again because some had no room.
const AGAIN: Duration = Duration::from_secs(30);

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

/// A watch that runs as long as a task holds it.
pub(super) struct ServiceWatch {
    /// The round of readings in which it was started.
    round: Round,
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
    pub(super) fn get(&mut self, client: &Client, key: &ObjectKey, round: Round) -> Arc<ServiceWatch> {
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
                tell.send_if_modified(|known| match after_failure(known, refused) {
                    Some(new) => {
                        *known = new;
                        true
                    }
                    None => false,
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

/// What nodes are told after an error of the API; `None`: nothing new. Known Services stay: an API server that has just
/// started refuses requests that it will allow.
fn after_failure(known: &Known, refused: bool) -> Option<Known> {
    match known {
        Known::Nothing | Known::Failed | Known::Refused if refused => Some(Known::Refused),
        Known::Nothing => Some(Known::Failed),
        Known::Failed | Known::Refused | Known::All(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_api_take_no_known_services_away() {
        let all = || Known::All(BTreeMap::new());
        assert!(after_failure(&all(), true).is_none() && after_failure(&all(), false).is_none());
        assert!(matches!(after_failure(&Known::Nothing, false), Some(Known::Failed)));
        assert!(matches!(after_failure(&Known::Failed, true), Some(Known::Refused)));
        assert!(after_failure(&Known::Refused, false).is_none(), "a refusal is not withdrawn by a lost connection");
    }
}
