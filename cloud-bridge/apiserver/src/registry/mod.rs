//! The verbs on stored resources. Each runs to its end under the storage's lock, without awaiting, so that its data is
//! unchanged between its read and its write.

pub(crate) mod account;
pub(crate) mod answer;
pub(crate) mod apply;
mod attempts;
pub(crate) mod cel;
pub(crate) mod context;
mod decode;
pub(crate) mod managed_fields;
pub(crate) mod metrics;
pub(crate) mod perform;
pub(crate) mod reviews;
pub(crate) mod selection;
pub(crate) mod subresource;
pub(crate) mod write;

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod draft;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod update;

use super::storage::StoreError;
use crate::resource::status::{ApiError, ApiResult};
use answer::Answer;
use context::Context;

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        log::error!("{error}");
        Self::internal(error)
    }
}

/// Gets one object.
pub(crate) fn get(ctx: &Context<'_>) -> ApiResult<Answer> {
    let store = ctx.store();
    if let Some(asked) = list::resource_version(ctx.query)?
        && asked > store.revision()
    {
        return Err(ApiError::version_too_large(asked, store.revision()));
    }
    Ok(Answer::Stored(200, ctx.current(&store)?))
}
