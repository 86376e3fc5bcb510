//! What exists from the first start on: the standing namespaces, and the custom resources of an earlier run.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::{definitions, garbage_collector};
use crate::kinds::service::cluster_ip;
use crate::registry::write;
use crate::resource::status::ApiError;
use crate::state::Inner;
use crate::storage::StoreError;
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// The namespaces that every cluster has.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Runs at every opening; idempotent.
pub(crate) fn run(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let fail = |error: ApiError| StoreError::Open { path: inner.config.file.clone(), reason: error.message };
    let mut store = inner.store();
    let Some(namespaces) = inner.registry.find("", "v1", "namespaces") else { return Ok(()) };
    for name in NAMESPACES {
        if store.get("namespaces", &ObjectKey::cluster(name))?.is_some() {
            continue;
        }
        let mut namespace = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "phase": "Active" },
        });
        meta::fill_new(&mut namespace, Timestamp::now());
        let stored = store.write("namespaces", namespace, None, None)?;
        write::after_write(inner, &mut store, &namespaces, &stored, None).map_err(fail)?;
    }
    super::repair(inner, &mut store)?;
    if let Some(range) = inner.config.services {
        cluster_ip::of_the_api(range, &mut store)?;
    }
    inner.related.follow(&mut store)?;
    definitions::load(inner, &mut store).map_err(fail)?;
    garbage_collector::recover(inner, &store)
}
