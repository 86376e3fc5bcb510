//! Performs a verb that writes, by a draft that is made at once or, if that may take long, beside the thread.

use std::sync::Arc;

use jiff::Timestamp;

use super::answer::Answer;
use super::context::Context;
use super::draft::{Aside, Done, Draft, Drafted, Sent};
use super::managed_fields::writer::Writer;
use super::{create, patch, update};
use crate::auth::request_info::{Query, ResourcePath};
use crate::resource::Resource;
use crate::resource::cel::Asked;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::storage::{Store, Stored};
use apimachinery::flow::Flow;
use apimachinery::pace::is_large;
use apimachinery::user::UserInfo;

/// How a verb makes its draft, of what was sent and the object that the path names.
pub(crate) type Make = fn(&mut Context<'_>, &Sent, Option<&Arc<Stored>>) -> ApiResult<Drafted>;

/// A verb that writes.
pub(crate) fn write(ctx: &mut Context<'_>, sent: Sent, make: Make) -> ApiResult<Answer> {
    let inner = Arc::clone(ctx.inner);
    let mut store = inner.store();
    let current = named(ctx, &store)?;
    let Drafted { draft, dry_run } = drafted(ctx, sent, current.as_ref(), make)?;
    drop(current);
    match draft {
        Draft::New(new) => Ok(Answer::Stored(201, create::insert(ctx, &mut store, new, dry_run)?)),
        Draft::Change(change) => {
            ctx.aside.spent = Some(Arc::clone(&change.current));
            Ok(Answer::Stored(200, update::replace(ctx, &mut store, *change, dry_run)?))
        }
    }
}

/// The object that the path names, if there is one.
pub(super) fn named(ctx: &Context<'_>, store: &Store) -> ApiResult<Option<Arc<Stored>>> {
    match ctx.path.name.as_str() {
        "" => Ok(None),
        _ => Ok(store.get(&ctx.resource.storage, &ctx.key())?),
    }
}

fn drafted(ctx: &mut Context<'_>, sent: Sent, current: Option<&Arc<Stored>>, make: Make) -> ApiResult<Drafted> {
    let rev = current.map(|current| current.rev);
    let fits = |done: &mut Done| done.rev == rev && Arc::ptr_eq(&done.resource, &ctx.resource);
    if let Some(done) = ctx.aside.done.take_if(fits) {
        ctx.warnings.extend(done.warnings);
        return done.outcome;
    }
    let is_slow = swells(&sent) || ctx.resource.strategy().has_patterns();
    if !is_slow && !is_large(sent.body.len() + current.map_or(0, |current| current.body.len())) {
        return make(ctx, &sent, current);
    }
    let request = Request::of(ctx);
    ctx.aside.pending = Some(Box::new(move |resource, current| request.draft(resource, current, &sent, make)));
    Err(ApiError::internal("the draft was not made"))
}

/// Whether a short text may make a large object: JSON patches copy, and YAML repeats what it has given a name.
fn swells(sent: &Sent) -> bool {
    sent.media == patch::JSON || (sent.media == patch::APPLY && sent.body.contains(&b'*'))
}

/// Ends a verb that may write this object as a whole: it runs again when the disk has taken most of the large objects before.
/// Small ones need no room.
pub(crate) fn await_disk(ctx: &mut Context<'_>, current: &Stored) -> ApiResult<()> {
    ctx.aside.awaits_disk = is_large(current.body.len()) && !ctx.inner.durable.has_room();
    if ctx.aside.awaits_disk { Err(ApiError::busy()) } else { Ok(()) }
}

/// A request as the worker thread holds it.
struct Request {
    inner: Arc<Inner>,
    user: UserInfo,
    flow: Flow,
    path: ResourcePath,
    query: Query,
    verb: String,
    now: Timestamp,
    writer: Writer,
    strict: Option<String>,
}

impl Request {
    fn of(ctx: &Context<'_>) -> Self {
        Self {
            inner: Arc::clone(ctx.inner),
            user: ctx.user.clone(),
            flow: ctx.flow.clone(),
            path: ctx.path.clone(),
            query: ctx.query.clone(),
            verb: ctx.verb.clone(),
            now: ctx.now,
            writer: ctx.writer.clone(),
            strict: ctx.strict.clone(),
        }
    }

    fn draft(&self, resource: Arc<Resource>, current: Option<Arc<Stored>>, sent: &Sent, make: Make) -> Done {
        let mut ctx = self.context(resource);
        let outcome = make(&mut ctx, sent, current.as_ref());
        Done { rev: current.map(|current| current.rev), resource: ctx.resource, outcome, warnings: ctx.warnings }
    }

    fn context(&self, resource: Arc<Resource>) -> Context<'_> {
        Context {
            inner: &self.inner,
            user: &self.user,
            flow: &self.flow,
            resource,
            path: &self.path,
            query: &self.query,
            verb: self.verb.clone(),
            now: self.now,
            warnings: Vec::new(),
            writer: self.writer.clone(),
            strict: self.strict.clone(),
            cel: Asked::default(),
            aside: Aside::default(),
            foresees: true,
            awaits_account: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_may_make_large_objects() {
        let swells = |media: &str, body: &'static str| swells(&Sent { body: body.into(), media: media.to_owned() });
        assert!(swells(patch::JSON, "[]") && swells(patch::APPLY, "a: &a [x]\nb: [*a, *a]"));
        assert!(!swells(patch::APPLY, "a: b") && !swells(patch::MERGE, "{\"a\": \"*\"}"));
    }
}
