//! The watch of one ConfigMap, Secret or RuntimeClass.

use std::pin::pin;

use edge_protocol::message::{Object, ObjectKey};
use futures::TryStreamExt;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;

use super::resource::resource;
use crate::bridge::pod_references::RUNTIME_CLASS;
use crate::bridge::slim::config_object;
use crate::bridge::world::Group;

/// News of one object.
pub(super) struct News {
    pub(super) key: ObjectKey,
    /// Which of the watches of this key speaks: an ended one is not listened to.
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
    /// The API does not tell it to the node in whose name it was asked.
    Refused,
}

/// What an error says of the object.
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
    let api: Api<DynamicObject> = match key.kind.as_str() {
        RUNTIME_CLASS => Api::all_with(client, &ApiResource::erase::<RuntimeClass>(&())),
        "Secret" => Api::namespaced_with(client, &key.namespace, &resource(&key.kind, "secrets")),
        _ => Api::namespaced_with(client, &key.namespace, &resource(&key.kind, "configmaps")),
    };
    let config = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut listed = None;
    let mut forbidden = false;
    loop {
        let what = match events.try_next().await {
            Ok(None) => return,
            Ok(Some(Event::Init)) => {
                listed = None;
                continue;
            }
            Ok(Some(Event::InitApply(object))) => {
                listed = Some(object);
                continue;
            }
            Ok(Some(Event::InitDone)) => listed.take().map_or(Some(What::Absent), |object| present(&key, object)),
            Ok(Some(Event::Apply(object))) => present(&key, object),
            Ok(Some(Event::Delete(_))) => Some(What::Absent),
            Err(error) => {
                // The right to it goes with the pod that names it, a moment before this watch does.
                let failure = watch_failure(&error);
                let passing = matches!(failure, What::Refused) && !std::mem::replace(&mut forbidden, true);
                let level = if passing { log::Level::Debug } else { log::Level::Warn };
                log::log!(level, "watching {} {}/{}: {error}", key.kind, key.namespace, key.name);
                Some(failure)
            }
        };
        let Some(what) = what else { continue };
        if news.send(News { key: key.clone(), watch, what }).await.is_err() {
            return;
        }
    }
}

/// Ignores an answer that is not the object asked for.
fn present(key: &ObjectKey, object: DynamicObject) -> Option<What> {
    config_object(&key.kind, object).filter(|object| object.digest.key == *key).map(What::Present)
}
