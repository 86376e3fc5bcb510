//! Pods in a namespace that is new: its `default` service account is made a moment later, and a pod that is created before
//! waits for it (K8s plugin/pkg/admission/serviceaccount, `getServiceAccount`).

use std::time::Duration;

use super::{Answer, Context, cel};
use crate::admission;
use crate::resource::status::ApiResult;

/// How often the account is looked up, as often as Kubernetes does.
const ATTEMPTS: u32 = 10;
/// The time between two of them, the mean of Kubernetes'.
const PAUSE: Duration = Duration::from_millis(150);

/// Runs a verb, and again for a second and a half while it is refused for want of the `default` account.
pub(crate) async fn awaited(
    ctx: &mut Context<'_>,
    mut verb: impl FnMut(&mut Context<'_>) -> ApiResult<Answer>,
) -> ApiResult<Answer> {
    let warnings = ctx.warnings.len();
    for _ in 1..ATTEMPTS {
        let outcome = cel::answered(ctx, &mut verb).await;
        let waits = |error| admission::lacks_default_account(error, &ctx.path.namespace);
        if !outcome.as_ref().is_err_and(waits) {
            return outcome;
        }
        ctx.warnings.truncate(warnings);
        tokio::time::sleep(PAUSE).await;
    }
    cel::answered(ctx, verb).await
}
