//! What exists from the first start on: the standing namespaces, and the custom resources of an earlier run.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::error::ApiError;
use super::state::Inner;
use super::storage::StoreError;
use super::{crd, gc, lifecycle, services};
use apimachinery::meta;

/// The namespaces that every cluster has.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Runs at every opening; idempotent.
pub(super) fn run(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let fail = |error: ApiError| StoreError::Open { path: inner.config.file.clone(), reason: error.message };
    let mut store = inner.store();
    let Some(namespaces) = inner.registry.find("", "v1", "namespaces") else { return Ok(()) };
    for name in NAMESPACES {
        if store.get("namespaces", &lifecycle::cluster_key(name))?.is_some() {
            continue;
        }
        let mut namespace = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "phase": "Active" },
        });
        meta::fill_new(&mut namespace, Timestamp::now());
        let stored = store.write("namespaces", namespace, None, None)?;
        lifecycle::after_write(inner, &mut store, &namespaces, &stored, None).map_err(fail)?;
    }
    lifecycle::repair(inner, &mut store)?;
    if let Some(range) = inner.config.services {
        services::of_the_api(range, &mut store)?;
    }
    inner.related.follow(&mut store)?;
    crd::load(inner, &mut store).map_err(fail)?;
    gc::recover(inner, &store)
}
