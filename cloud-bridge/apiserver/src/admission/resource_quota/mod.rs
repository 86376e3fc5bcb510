//! The ResourceQuota admission: a new object must fit into the quotas of its namespace, and is charged to them in the
//! same transaction as its write.

mod charge;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::attributes::{Attributes, subject};
use crate::kinds::resource_quota::{STORAGE, usage};
use crate::kinds::{event, volume};
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Store, Stored};
use charge::Request;

/// Quotas to write together with an object: each as stored, and its new value.
pub(crate) type Charges = Vec<(Arc<Stored>, Value)>;

/// Charges a new or changed object. `old` is the object before an update.
///
/// # Errors
/// 403: a quota has no room for it, or requires more fields of it.
pub(crate) fn admit(
    store: &Store,
    ctx: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
    now: Timestamp,
) -> ApiResult<Charges> {
    if !ctx.resource.namespaced || !counts(ctx, new, old) {
        return Ok(Vec::new());
    }
    let quotas = store.list(STORAGE, Some(&ctx.path.namespace), None, None)?;
    if quotas.is_empty() {
        return Ok(Vec::new());
    }
    let resource = ctx.resource.qualified();
    let request = Request { resource: &resource, new, old, status: ctx.path.subresource == "status", now };
    let values: Vec<&Value> = quotas.iter().map(|quota| quota.value()).collect();
    let changed =
        charge::charge(&values, &request).map_err(|why| ApiError::forbidden(&ctx.resource, subject(new), &why))?;
    Ok(changed.into_iter().filter_map(|(place, after)| Some((Arc::clone(quotas.get(place)?), after))).collect())
}

/// Whether such a request can cost anything.
fn counts(ctx: &Attributes<'_>, new: &Value, old: Option<&Value>) -> bool {
    let storage = ctx.resource.storage.as_ref();
    match (storage, ctx.path.subresource.as_str(), old) {
        (event::STORAGE, ..) => false,
        ("pods", "", Some(old)) => usage::terminating(new) != usage::terminating(old),
        ("pods", "resize", Some(_)) | ("services", "", Some(_)) => true,
        (volume::CLAIMS, "" | "status", Some(_)) => true,
        (_, "", None) => true,
        _ => false,
    }
}

/// Writes what an object costs.
pub(crate) fn write(store: &mut Store, charges: Charges) -> ApiResult<()> {
    for (before, after) in charges {
        store.write(STORAGE, after, Some(&before), None)?;
    }
    Ok(())
}
