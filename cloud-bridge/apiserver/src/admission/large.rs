//! Refuses large objects of which a namespace has enough.

use serde_json::Value;

use super::attributes::{Attributes, subject};
use crate::codec::bounds;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::large::LargeObjects;

/// Before a creation or, with `old`, an update. Statuses are what controllers and nodes write of it.
pub(super) fn admit(ctx: &Attributes<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    if !LargeObjects::keeps(&ctx.resource.storage) || !ctx.path.subresource.is_empty() {
        return Ok(());
    }
    let (bytes, had) = (bounds::bytes(new), old.map_or(0, bounds::bytes));
    let admitted = ctx.inner.large.admit(&ctx.path.namespace, bytes, had);
    admitted.map_err(|why| ApiError::forbidden(&ctx.resource, subject(new), &why))
}
