//! Server-side apply.

use bytes::Bytes;

use super::error::{ApiError, ApiResult};
use super::rest::{Answer, Context};

/// PATCH with `application/apply-patch+yaml`.
pub(super) fn apply(ctx: &mut Context<'_>, body: &Bytes, dry_run: bool) -> ApiResult<Answer> {
    let _ = (ctx, body, dry_run);
    Err(ApiError::unsupported_media_type("application/json-patch+json, application/merge-patch+json"))
}
