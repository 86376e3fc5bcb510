//! Pods in a namespace that is new: its `default` service account is made a moment later, and a pod that is created before
//! waits for it (K8s plugin/pkg/admission/serviceaccount, `getServiceAccount`).

use std::time::Duration;

use super::answer::Answer;
use super::attempts::answered;
use super::context::Context;
use crate::admission;
use crate::resource::status::ApiResult;

/// How often the account is looked up, as often as Kubernetes does.
const ATTEMPTS: u32 = 10;
/// The time between two of them, the mean of Kubernetes'.
const PAUSE: Duration = Duration::from_millis(150);

/// Executes a verb, and again after the missing `default` account was created. Each attempt takes a turn of the client.
pub(crate) async fn awaited(
    ctx: &mut Context<'_>,
    mut verb: impl FnMut(&mut Context<'_>) -> ApiResult<Answer>,
) -> ApiResult<Answer> {
    let warnings = ctx.warnings.len();
    let refused = answered(ctx, &mut verb).await;
    if !std::mem::take(&mut ctx.awaits_account) {
        return refused;
    }
    for _ in 1..ATTEMPTS {
        tokio::time::sleep(PAUSE).await;
        let step = ctx.inner.limits.steps.next(ctx.flow).await;
        let found = admission::has_default_account(&ctx.store(), &ctx.path.namespace)?;
        if found {
            ctx.warnings.truncate(warnings);
            return step.begin(answered(ctx, verb)).await;
        }
    }
    refused
}
