//! The finalize subresource of namespaces.

use bytes::Bytes;
use sampan_json::SetField;

use crate::registry::answer::Answer;
use crate::registry::context::Context;
use crate::registry::write;
use crate::resource::status::{ApiError, ApiResult};
use crate::state;
use crate::storage::Stored;
use apimachinery::meta;

/// PUT of `namespaces/NAME/finalize`: replaces `spec.finalizers` only.
pub(crate) fn finalize(ctx: &mut Context<'_>, body: &Bytes) -> ApiResult<Answer> {
    let asked = ctx.decode(body, None)?;
    let dry_run = ctx.dry_run()?;
    let inner: &state::Inner = ctx.inner;
    let mut store = inner.store();
    let current = ctx.current(&store)?;
    let version = meta::text(&asked, "resourceVersion");
    if !version.is_empty() && version != current.rev.to_string() {
        return Err(ApiError::modified(&ctx.resource, &ctx.path.name));
    }
    let mut new = current.value().clone();
    new.set("spec", asked["spec"].clone());
    if new["spec"].is_null() {
        new.set("spec", serde_json::json!({}));
    }
    if dry_run {
        return Ok(Answer::Stored(200, Stored::unwritten(new)));
    }
    write::rewrite(&mut store, &ctx.resource, &current, new.clone())?;
    let stored = store.get(&ctx.resource.storage, &current.key)?;
    Ok(Answer::Stored(200, stored.unwrap_or_else(|| Stored::unwritten(new))))
}
