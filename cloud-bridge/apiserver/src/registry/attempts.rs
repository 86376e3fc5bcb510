//! Runs a verb, and again when it has what it lacked: a draft, room on the disk, or a verdict on validation rules.

use std::sync::Arc;

use super::answer::Answer;
use super::context::Context;
use super::perform::named;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::state::apart::Turn;
use apimachinery::flow::Flow;

/// How often an object may have changed while its draft was made or its rules were judged; as often as the API server
/// tries a patch.
const ATTEMPTS: usize = 5;

/// Runs a verb, and again whenever it has asked about rules and was answered.
pub(crate) async fn answered(
    ctx: &mut Context<'_>,
    mut verb: impl FnMut(&mut Context<'_>) -> ApiResult<Answer>,
) -> ApiResult<Answer> {
    let warnings = ctx.warnings.len();
    for _ in 1..ATTEMPTS {
        let outcome = awaited(ctx, &mut verb).await;
        let Some(question) = ctx.cel.pending.take() else { return outcome };
        ctx.warnings.truncate(warnings);
        let verdict = ctx.inner.cel.ask(&ctx.user.name, &question).await?;
        ctx.cel.answered = Some((question, verdict));
        ctx.look_up()?;
    }
    let outcome = awaited(ctx, &mut verb).await;
    if ctx.cel.pending.take().is_none() { outcome } else { Err(ApiError::modified(&ctx.resource, &ctx.path.name)) }
}

/// Waits for the turn of this flow and for room on the disk. Those who only read have their turns meanwhile.
async fn turn(inner: &Inner, flow: &Flow) -> Turn {
    loop {
        let turn = inner.limits.apart.turn(flow).await;
        if inner.durable.has_room() {
            return turn;
        }
        drop(turn);
        room(inner, flow).await;
    }
}

/// Waits for room on the disk in a line, which goes on in its order: the disk wakes requests in any order, and many of one
/// flow would nearly always be before the one of another.
async fn room(inner: &Inner, flow: &Flow) {
    let _first = inner.limits.disk.next(flow).await;
    inner.durable.room().await;
}

/// Runs a verb, and again whenever it has needed a draft and that was made, or the disk.
async fn awaited(
    ctx: &mut Context<'_>,
    verb: &mut impl FnMut(&mut Context<'_>) -> ApiResult<Answer>,
) -> ApiResult<Answer> {
    let warnings = ctx.warnings.len();
    let mut outcome = verb(ctx);
    for _ in 0..ATTEMPTS {
        if std::mem::take(&mut ctx.aside.awaits_disk) {
            room(ctx.inner, ctx.flow).await;
            ctx.look_up()?;
            ctx.warnings.truncate(warnings);
            outcome = verb(ctx);
            continue;
        }
        let Some(make) = ctx.aside.pending.take() else { return outcome };
        // Until the verb has run, no other draft of the object is made: all but one would be discarded.
        let turn = turn(ctx.inner, ctx.flow).await;
        ctx.look_up()?;
        let resource = Arc::clone(&ctx.resource);
        let current = named(ctx, &ctx.store())?;
        let (done, turn) = turn.work(move || make(resource, current)).await?;
        ctx.aside.done = Some(done);
        ctx.look_up()?;
        outcome = verb(ctx);
        turn.end((ctx.aside.done.take(), ctx.aside.spent.take()));
    }
    if ctx.aside.pending.take().is_none() { outcome } else { Err(ApiError::modified(&ctx.resource, &ctx.path.name)) }
}
