//! The LimitRanger admission: the LimitRanges of a namespace give containers amounts that they do not name, and refuse what
//! asks for too much or too little (K8s plugin/pkg/admission/limitranger).

mod check;
mod defaults;

use std::sync::Arc;

use serde_json::Value;

use super::attributes::Attributes;
use super::subject;
use crate::kinds::{limit_range, volume};
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Store, Stored};
use apimachinery::json::items;
use apimachinery::meta;

/// Before a pod or a claim is created, or changed in what it asks for. `old` is the object before an update.
pub(super) fn admit(store: &Store, ctx: &Attributes<'_>, new: &mut Value, old: Option<&Value>) -> ApiResult<()> {
    let pod = ctx.resource.rules().admit_pods;
    let meant = match (pod, old.is_some(), ctx.path.subresource.as_str()) {
        // What a pod asks for is changed by `resize` alone.
        (true, false, "") | (true, true, "resize") => true,
        (false, _, "") => ctx.resource.storage == volume::CLAIMS,
        _ => false,
    };
    if !meant || old.is_some_and(meta::deleting) {
        return Ok(());
    }
    let ranges: Vec<Arc<Stored>> = store.list(limit_range::STORAGE, Some(&ctx.path.namespace), None, None)?;
    let limits = || ranges.iter().map(|range| items(&range.value()["spec"], "limits"));
    if pod {
        limits().for_each(|limits| defaults::fill(new, limits));
    }
    for limits in limits() {
        let wrong = if pod { check::pod(new, limits) } else { check::claim(new, limits) };
        if let Some(why) = check::joined(wrong) {
            return Err(ApiError::forbidden(&ctx.resource, subject(new), &why));
        }
    }
    Ok(())
}
