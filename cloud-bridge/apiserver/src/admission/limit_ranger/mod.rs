//! The LimitRanger admission: the LimitRanges of a namespace give containers amounts that they do not name, and refuse what
//! asks for too much or too little (K8s plugin/pkg/admission/limitranger).

mod check;
mod defaults;

use std::sync::Arc;

use serde_json::Value;

use super::attributes::{Attributes, subject};
use crate::kinds::{limit_range, volume};
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Store, Stored};
use apimachinery::json::{entries, items};
use apimachinery::meta;

/// Maximum number of amounts that the containers of one pod are compared with, or receive: a LimitRange may name any
/// number. In
/// Kubernetes the time is the API server's.
const WORK_MAX: usize = 200_000;

/// The lists of amounts in a limit.
const LISTS: [&str; 5] = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"];

/// The ranges that apply to a pod or a claim that is created, or whose requests change. `old` is the object before an
/// update.
fn ranges(store: &Store, ctx: &Attributes<'_>, old: Option<&Value>) -> ApiResult<Vec<Arc<Stored>>> {
    let meant = match (ctx.resource.rules().admit_pods, old.is_some(), ctx.path.subresource.as_str()) {
        // Only `resize` changes the resources of a pod.
        (true, false, "") | (true, true, "resize") => true,
        (false, _, "") => ctx.resource.storage == volume::CLAIMS,
        _ => false,
    };
    if !meant || old.is_some_and(meta::deleting) {
        return Ok(Vec::new());
    }
    Ok(store.list(limit_range::STORAGE, Some(&ctx.path.namespace), None, None)?)
}

fn limits(range: &Stored) -> &[Value] {
    items(&range.value()["spec"], "limits")
}

/// How many amounts a pod's containers are held against.
fn work(pod: &Value, ranges: &[Arc<Stored>]) -> usize {
    let containers = items(&pod["spec"], "containers").len() + items(&pod["spec"], "initContainers").len();
    let amounts = |limit: &Value| LISTS.iter().map(|list| entries(limit, list).count()).sum::<usize>();
    let all: usize = ranges.iter().flat_map(|range| limits(range)).map(amounts).sum();
    containers.saturating_mul(all)
}

/// Sets omitted resources.
pub(super) fn fill(store: &Store, ctx: &Attributes<'_>, new: &mut Value, old: Option<&Value>) -> ApiResult<()> {
    if !ctx.resource.rules().admit_pods {
        return Ok(());
    }
    let ranges = ranges(store, ctx, old)?;
    if work(new, &ranges) > WORK_MAX {
        let why = "it has too many containers for all that the limit ranges of its namespace say";
        return Err(ApiError::forbidden(&ctx.resource, subject(new), why));
    }
    ranges.iter().for_each(|range| defaults::fill(new, limits(range)));
    Ok(())
}

/// Refuses what asks for too much or too little.
pub(super) fn judge(store: &Store, ctx: &Attributes<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    let pod = ctx.resource.rules().admit_pods;
    for range in ranges(store, ctx, old)? {
        let wrong = if pod { check::pod(new, limits(&range)) } else { check::claim(new, limits(&range)) };
        if let Some(why) = check::joined(wrong) {
            return Err(ApiError::forbidden(&ctx.resource, subject(new), &why));
        }
    }
    Ok(())
}
