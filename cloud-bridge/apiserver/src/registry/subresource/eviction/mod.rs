//! POST of `pods/NAME/eviction`: a deletion that the pod's disruption budget may refuse.

mod budget;

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::policy::v1::Eviction;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::pod::{set_condition, success};
use crate::admission::node_restriction;
use crate::kinds::disruption_budget;
use crate::registry::answer::Answer;
use crate::registry::context::Context;
use crate::registry::delete::{self, Options};
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::typed;
use crate::storage::{Most, Page, Store, Stored};
use apimachinery::field::FieldError;
use apimachinery::json::{flag, items, text};
use apimachinery::meta;
use budget::Refusal;

const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const SEVERAL: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
/// Maximum bytes of budgets that are read for one eviction: a user may write many large ones.
const LOOKED_AT: usize = 2 << 20;
/// After which a client asks again while the budget's controller has not seen the newest spec.
const RETRY_SECONDS: i64 = 10;

/// Evicts a pod.
pub(crate) fn evict(ctx: &mut Context<'_>, body: &Bytes) -> ApiResult<Answer> {
    let mut eviction = typed::read::<Eviction>(body, "Eviction")?;
    ctx.match_namespace(&mut eviction)?;
    let given = meta::text(&eviction, "name");
    if !given.is_empty() && given != ctx.path.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    if flag(&eviction["deleteOptions"], "ignoreStoreReadErrorWithClusterBreakingPotential") {
        return Err(unsafe_option(ctx));
    }
    let mut options = Options::from_value(&eviction["deleteOptions"])?;
    options.dry_run |= ctx.dry_run()?;
    let inner = ctx.inner;
    let mut store = inner.store();
    let current = ctx.current(&store)?;
    node_restriction::restrict_eviction(&ctx.attributes(), &current)?;
    let spent = spent(ctx, &store, &current)?;
    // Nothing is counted for a pod that its client did not mean.
    delete::preconditions(&ctx.resource, &current, &options)?;
    if options.dry_run {
        delete::remove(&mut store, &ctx.resource, &current, &options, ctx.now)?;
        return Ok(success(201));
    }
    if let Some((before, after)) = spent {
        store.write(disruption_budget::STORAGE, after, Some(&before), None)?;
    }
    let marked = store.write(&ctx.resource.storage, marked(ctx, current.value()), Some(&current), None)?;
    // It was the right version before the mark.
    options.resource_version = None;
    delete::remove(&mut store, &ctx.resource, &marked, &options, ctx.now)?;
    Ok(success(201))
}

/// The charged budget: its present and its new state.
fn spent(ctx: &Context<'_>, store: &Store, pod: &Stored) -> ApiResult<Option<(Arc<Stored>, Value)>> {
    if budget::needs_none(pod.value()) {
        return Ok(None);
    }
    let (place, most) = (Some(pod.key.namespace.as_str()), Most { items: 2, bytes: LOOKED_AT });
    let is_for = |one: &Stored| budget::is_for(one.value(), pod.value());
    let Page { items: budgets, next } =
        store.list_at(disruption_budget::STORAGE, place, store.revision(), None, most, &is_for)?;
    if next.is_some() && budgets.len() < most.items {
        return Err(violation("the disruption budgets of the namespace are larger than what is looked at"));
    }
    let values: Vec<&Value> = budgets.iter().map(|one| one.value()).collect();
    let after = budget::spend(pod.value(), &values, ctx.now).map_err(refused)?;
    Ok(budgets.into_iter().next().zip(after))
}

fn refused(refusal: Refusal) -> ApiError {
    match refusal {
        Refusal::SeveralBudgets => ApiError::unknown(SEVERAL),
        Refusal::Processing { budget } => {
            let why = format!("The disruption budget {budget} is still being processed by the server.");
            let mut error = violation(&why);
            error.details.set("retryAfterSeconds", RETRY_SECONDS.into());
            error
        }
        Refusal::Spent { why } => violation(&why),
        Refusal::Broken { budget, why } => {
            let text = format!("poddisruptionbudget.policy {budget:?} is forbidden: {why}");
            let mut error = ApiError::forbidden_text(text);
            error.details = json!({"name": budget, "group": "policy", "kind": "poddisruptionbudget"});
            error
        }
    }
}

fn violation(why: &str) -> ApiError {
    let mut error = ApiError::too_many_requests(VIOLATION);
    error.details = json!({});
    error.with_cause("DisruptionBudget", why, "")
}

fn unsafe_option(ctx: &Context<'_>) -> ApiError {
    let path = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential";
    let detail = "can not be set for pod eviction, try after removing the option";
    let wrong = FieldError::invalid(path, &true.into(), detail);
    let mut error = ApiError::invalid(&ctx.resource, &ctx.path.name, &[wrong]);
    error.message = error.message.replacen("Pod", "Eviction.policy", 1);
    error.details.set("kind", "Eviction".into());
    error.details.set("group", "policy".into());
    error
}

/// The pod with the condition by which controllers know that it did not fail by itself.
fn marked(ctx: &Context<'_>, pod: &Value) -> Value {
    const TYPE: &str = "DisruptionTarget";
    let mut condition = json!({
        "type": TYPE,
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": null,
        "lastTransitionTime": meta::rfc3339(ctx.now),
    });
    let mut pod = pod.clone();
    let before = items(&pod["status"], "conditions").iter().find(|one| text(one, "type") == TYPE);
    if let Some(before) = before.filter(|one| text(one, "status") == "True") {
        condition.set("lastTransitionTime", before["lastTransitionTime"].clone());
    }
    set_condition(&mut pod, condition);
    pod
}
