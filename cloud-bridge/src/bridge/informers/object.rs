//! The watch of one ConfigMap, Secret, RuntimeClass or CSIDriver. It watches only the metadata, since a stream keeps a
//! buffer for its largest event, and pods may name many large objects. After each change the object is read.

use std::pin::pin;
use std::time::Duration;

use edge_protocol::message::ObjectKey;
use futures::TryStreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{DynamicResourceScope, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::Semaphore;

use super::admit::level;
use super::news::{Subscription, What, failure, watch_failure};
use crate::bridge::pauses::Pauses;
use crate::bridge::resource::of_kind;
use crate::bridge::slim::config_object;
use crate::bridge::told::kinds::Kind;

/// Limit of concurrent reads: each object may have a megabyte.
static READS: Semaphore = Semaphore::const_new(4);

/// Pause before an object is read again, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Follows one object until aborted.
pub(super) async fn watch_object(client: Client, kind: Kind, to: Subscription) {
    let metadata: Api<PartialObjectMeta<DynamicObject>> = api_of(client.clone(), kind, &to.key);
    let api = api_of(client, kind, &to.key);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", to.key.name));
    let mut events = pin!(watcher(metadata, config).default_backoff());
    let follower = Follower { api, to };
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
            Ok(Some(Event::InitDone | Event::Delete(_))) => follower.to.tell(What::Absent).await,
            Err(error) => {
                // The right to the object ends with the pod that names it, a moment before this watch does.
                let failure = watch_failure(&error);
                let passing = matches!(failure, What::Refused) && !std::mem::replace(&mut forbidden, true);
                let level = if passing { log::Level::Debug } else { log::Level::Warn };
                let key = &follower.to.key;
                log::log!(level, "watching {} {}/{}: {error}", key.kind, key.namespace, key.name);
                follower.to.tell(failure).await
            }
        };
        if told.is_none() {
            return;
        }
    }
}

/// The API of this kind, in the namespace of the object if it has one.
pub(super) fn api_of<K>(client: Client, kind: Kind, key: &ObjectKey) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match key.namespace.as_str() {
        "" => Api::all_with(client, &of_kind(kind)),
        namespace => Api::namespaced_with(client, namespace, &of_kind(kind)),
    }
}

/// Reads an object, and sends it to the receiver.
struct Follower {
    api: Api<DynamicObject>,
    to: Subscription,
}

impl Follower {
    /// Reads the object until the API answers, and sends it; returns `None` once the receiver is gone.
    async fn read(&self) -> Option<()> {
        let mut pauses = Pauses::new(AGAIN);
        loop {
            let turn = READS.acquire().await;
            let error = match self.api.get_opt(&self.to.key.name).await {
                Ok(Some(object)) => {
                    return match present(&self.to.key, object) {
                        Some(present) => self.to.tell(present).await,
                        None => Some(()),
                    };
                }
                Ok(None) => return self.to.tell(What::Absent).await,
                Err(error) => error,
            };
            drop(turn);
            let ObjectKey { kind, namespace, name, .. } = &self.to.key;
            log::log!(level(&error), "reading {kind} {namespace}/{name}: {error}");
            self.to.tell(failure(&error)).await?;
            pauses.wait().await;
        }
    }
}

/// Ignores an answer that is not the object asked for.
fn present(key: &ObjectKey, object: DynamicObject) -> Option<What> {
    config_object(&key.kind, object).filter(|object| object.digest.key == *key).map(What::Present)
}
