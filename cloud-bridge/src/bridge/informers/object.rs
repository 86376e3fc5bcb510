//! The watch of one ConfigMap, Secret or RuntimeClass. It watches only the metadata, since a stream keeps a buffer for
//! its largest event, and pods may name many large objects. After each change the object is read.

use std::pin::pin;
use std::time::Duration;

use edge_protocol::message::{Object, ObjectKey};
use futures::TryStreamExt;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{DynamicResourceScope, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::{Semaphore, mpsc};

use super::admit::level;
use super::resource::resource;
use crate::bridge::pod_references::RUNTIME_CLASS;
use crate::bridge::slim::config_object;
use crate::bridge::world::Group;

/// Limit of concurrent reads: each object may have a megabyte.
static READS: Semaphore = Semaphore::const_new(4);

/// Pause before an object is read again, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A change of one object.
pub(super) struct News {
    pub(super) key: ObjectKey,
    /// Number of the watch that sent it: changes of an ended watch are ignored.
    pub(super) watch: u64,
    pub(super) what: What,
}

pub(super) enum What {
    Present(Object),
    /// All objects of a group.
    Group(Group),
    Absent,
    /// The answer is unknown.
    Failed,
    /// The API refuses the object to the node in whose name it was requested.
    Refused,
}

/// Classifies an error for the object.
pub(super) fn failure(error: &kube::Error) -> What {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => What::Refused,
        _ => What::Failed,
    }
}

/// Same as [`failure`], for a watch.
pub(super) fn watch_failure(error: &watcher::Error) -> What {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) => failure(error),
        _ => What::Failed,
    }
}

/// Follows one object until aborted.
pub(super) async fn watch_object(client: Client, key: ObjectKey, watch: u64, news: mpsc::Sender<News>) {
    let metadata: Api<PartialObjectMeta<DynamicObject>> = api_of(client.clone(), &key);
    let api = api_of(client, &key);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let mut events = pin!(watcher(metadata, config).default_backoff());
    let follower = Follower { api, key, watch, news };
    let mut listed = false;
    let mut forbidden = false;
    loop {
        let told = match events.try_next().await {
            Ok(None) => return,
            Ok(Some(Event::Init)) => {
                listed = false;
                continue;
            }
            Ok(Some(Event::InitApply(_))) => {
                listed = true;
                continue;
            }
            Ok(Some(Event::InitDone)) if listed => follower.read().await,
            Ok(Some(Event::Apply(_))) => follower.read().await,
            Ok(Some(Event::InitDone | Event::Delete(_))) => follower.tell(What::Absent).await,
            Err(error) => {
                // The right to the object ends with the pod that names it, a moment before this watch does.
                let failure = watch_failure(&error);
                let passing = matches!(failure, What::Refused) && !std::mem::replace(&mut forbidden, true);
                let level = if passing { log::Level::Debug } else { log::Level::Warn };
                let key = &follower.key;
                log::log!(level, "watching {} {}/{}: {error}", key.kind, key.namespace, key.name);
                follower.tell(failure).await
            }
        };
        if told.is_none() {
            return;
        }
    }
}

/// The API of the kind of this object, in its namespace.
fn api_of<K>(client: Client, key: &ObjectKey) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match key.kind.as_str() {
        RUNTIME_CLASS => Api::all_with(client, &ApiResource::erase::<RuntimeClass>(&())),
        "Secret" => Api::namespaced_with(client, &key.namespace, &resource(&key.kind, "secrets")),
        _ => Api::namespaced_with(client, &key.namespace, &resource(&key.kind, "configmaps")),
    }
}

/// Reads an object, and sends it to the receiver.
struct Follower {
    api: Api<DynamicObject>,
    key: ObjectKey,
    watch: u64,
    news: mpsc::Sender<News>,
}

impl Follower {
    /// Returns `None` once the receiver is gone.
    async fn tell(&self, what: What) -> Option<()> {
        self.news.send(News { key: self.key.clone(), watch: self.watch, what }).await.ok()
    }

    /// Reads the object until the API answers, and sends it.
    async fn read(&self) -> Option<()> {
        let mut pause = AGAIN.0;
        loop {
            let turn = READS.acquire().await;
            let error = match self.api.get_opt(&self.key.name).await {
                Ok(Some(object)) => {
                    return match present(&self.key, object) {
                        Some(present) => self.tell(present).await,
                        None => Some(()),
                    };
                }
                Ok(None) => return self.tell(What::Absent).await,
                Err(error) => error,
            };
            drop(turn);
            let ObjectKey { kind, namespace, name, .. } = &self.key;
            log::log!(level(&error), "reading {kind} {namespace}/{name}: {error}");
            self.tell(failure(&error)).await?;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN.1);
        }
    }
}

/// Ignores an answer that is not the object asked for.
fn present(key: &ObjectKey, object: DynamicObject) -> Option<What> {
    config_object(&key.kind, object).filter(|object| object.digest.key == *key).map(What::Present)
}
