//! What every namespace has for its service accounts: the ConfigMap with the certificate that pods trust the API by
//! (K8s pkg/controller/certificates/rootcacertpublisher).

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::json;

use super::namespaces;
use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use crate::auth::accounts::ROOT_CA;
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::{Store, StoreError};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

const MAPS: &str = "configmaps";

/// Creates the ConfigMap in a new namespace, and again after it was deleted or changed. The keys are namespaces.
#[derive(Default)]
pub(super) struct RootCa;

impl Controller for RootCa {
    type Key = String;

    const NAME: &'static str = "publishing the root certificate";

    fn storages(_: &Inner) -> Vec<String> {
        vec![namespaces::STORAGE.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<String>) {
        match (seen.storage, seen.before, seen.after) {
            (namespaces::STORAGE, None, Some(_)) => queue.add(seen.key.name.clone()),
            (MAPS, _, _) if seen.key.name == ROOT_CA => queue.add(seen.key.namespace.clone()),
            _ => {}
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, String>, namespace: &String) -> ApiResult<()> {
        Ok(reconcile(turn.inner, turn.store, namespace)?)
    }
}

/// Creates it, or corrects its certificate.
pub(super) fn reconcile(inner: &Inner, store: &mut Store, namespace: &str) -> Result<(), StoreError> {
    let Some(accounts) = &inner.config.accounts else { return Ok(()) };
    if !namespaces::stays(store, namespace)? {
        return Ok(());
    }
    let key = ObjectKey { namespace: namespace.to_owned(), name: ROOT_CA.to_owned() };
    let data = json!({"ca.crt": accounts.root_ca});
    let current = store.get(MAPS, &key)?;
    let map = match &current {
        Some(current) if current.value()["data"] == data => return Ok(()),
        Some(current) => {
            let mut map = current.value().clone();
            map.set("data", data);
            map
        }
        None => {
            let why = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
            let mut map = json!({
                "metadata": {"name": ROOT_CA, "namespace": namespace, "annotations": {"kubernetes.io/description": why}},
                "data": data,
            });
            meta::fill_new(&mut map, Timestamp::now());
            map
        }
    };
    store.write(MAPS, map, current.as_ref(), None).map(drop)
}
