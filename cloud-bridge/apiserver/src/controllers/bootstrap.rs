//! What exists from the first start on, and before the first request: the standing namespaces with what every namespace
//! has, the default roles, the classes of the system's pods, and the custom resources of an earlier run.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::{bootstrap_policy, definitions, namespaces, root_ca, service_accounts};
use crate::kinds::priority_class;
use crate::kinds::service::cluster_ip;
use crate::state::Inner;
use crate::storage::{Store, StoreError};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// The namespaces that every cluster has.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Runs at every opening; idempotent.
pub(crate) fn run(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let mut store = inner.store();
    for name in NAMESPACES {
        namespace(&mut store, name)?;
        service_accounts::reconcile(&mut store, name)?;
        root_ca::reconcile(inner, &mut store, name)?;
    }
    for class in priority_class::system(Timestamp::now()) {
        if store.get(priority_class::STORAGE, &ObjectKey::of(&class))?.is_none() {
            store.write(priority_class::STORAGE, class, None, None)?;
        }
    }
    if let Some(range) = inner.config.services {
        cluster_ip::of_the_api(range, &mut store)?;
    }
    bootstrap_policy::reconcile(&mut store)?;
    inner.authorizer.follow(&mut store)?;
    inner.held.follow(&mut store)?;
    inner.large.follow(&mut store)?;
    definitions::load(inner, &store)
}

fn namespace(store: &mut Store, name: &str) -> Result<(), StoreError> {
    if store.get(namespaces::STORAGE, &ObjectKey::cluster(name))?.is_some() {
        return Ok(());
    }
    let mut namespace = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
        "spec": { "finalizers": ["kubernetes"] },
        "status": { "phase": "Active" },
    });
    meta::fill_new(&mut namespace, Timestamp::now());
    store.write(namespaces::STORAGE, namespace, None, None).map(drop)
}
