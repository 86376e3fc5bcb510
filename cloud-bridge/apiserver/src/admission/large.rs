//! Refuses large objects of which a namespace has enough.

use serde_json::Value;

use super::attributes::{Attributes, subject};
use crate::resource::status::{ApiError, ApiResult};

/// Before a creation or, with `old`, an update. Statuses are what controllers and nodes write of it.
pub(super) fn admit(ctx: &Attributes<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    if !ctx.path.subresource.is_empty() {
        return Ok(());
    }
    let admitted = ctx.inner.large.admit(&ctx.resource.storage, &ctx.path.namespace, new, old);
    admitted.map_err(|why| ApiError::forbidden(&ctx.resource, subject(new), &why))
}
