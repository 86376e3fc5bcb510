//! Writes on behalf of the server itself. Called with the storage's lock held.

use std::sync::Arc;

use serde_json::Value;

use crate::resource::Resource;
use crate::storage::{Store, StoreError, Stored};
use apimachinery::meta;

/// Writes a changed object, or deletes it if it waited only for finalizers.
pub(crate) fn rewrite(
    store: &mut Store,
    resource: &Resource,
    current: &Arc<Stored>,
    new: Value,
) -> Result<(), StoreError> {
    let held = resource.rules().spec_finalizers && new["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    let waits = meta::deleting(&new) && meta::grace(&new).unwrap_or(0) == 0;
    if waits && meta::finalizers(&new).is_empty() && !held {
        store.delete(&resource.storage, current)?;
    } else {
        store.write(&resource.storage, new, Some(current), None)?;
    }
    Ok(())
}
