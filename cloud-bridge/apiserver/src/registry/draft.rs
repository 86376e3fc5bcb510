//! Draft of a write, made without the storage: reads and types the body, merges it with the stored object, fills in
//! defaults and sets the field owners. For a large object that is most of the work, so it runs beside the thread
//! (`state::apart`), which answers other requests meanwhile. A verb that needs a draft ends; when the draft is done,
//! the verb runs again. It uses the draft if the object has not changed since, as the API server retries a patch
//! (apiserver pkg/endpoints/handlers/patch.go, `patchResource`).

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::managed_fields::Writer;
use super::{Answer, Context, cel, create, patch, update};
use crate::auth::request_info::{Query, ResourcePath};
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::state::apart::Turn;
use crate::storage::{Store, Stored};
use apimachinery::flow::Flow;
use apimachinery::pace::is_large;
use apimachinery::user::UserInfo;

/// How often an object may have changed while the draft of a write was made; as often as the API server tries a patch.
const ATTEMPTS: usize = 5;

/// A write, as far as it is known without the storage.
pub(crate) enum Draft {
    New(create::New),
    Change(Box<update::Change>),
}

/// What a request says of a write.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) body: Bytes,
    pub(crate) media: String,
}

impl Sent {
    /// Whether a short text may make a large object: JSON patches copy, and YAML repeats what it has given a name.
    fn swells(&self) -> bool {
        self.media == patch::JSON || (self.media == patch::APPLY && self.body.contains(&b'*'))
    }
}

/// How a verb makes its draft, of what was sent and the object that the path names.
pub(crate) type Make = fn(&mut Context<'_>, &Sent, Option<&Arc<Stored>>) -> ApiResult<Drafted>;

pub(crate) struct Drafted {
    pub(crate) draft: Draft,
    pub(crate) dry_run: bool,
}

/// A draft to make beside the thread, and a finished one.
#[derive(Default)]
pub(crate) struct Aside {
    pending: Option<Pending>,
    done: Option<Done>,
    /// The state that a write has replaced, parsed: the draft needed it, and nothing else does.
    spent: Option<Arc<Stored>>,
    /// The verb would write a large object, for which the disk has no room yet.
    awaits_disk: bool,
}

struct Pending {
    request: Request,
    make: Make,
    sent: Sent,
}

struct Done {
    /// The revision that it was made for, and by what definition.
    rev: Option<u64>,
    resource: Arc<Resource>,
    outcome: ApiResult<Drafted>,
    warnings: Vec<String>,
}

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
fn named(ctx: &Context<'_>, store: &Store) -> ApiResult<Option<Arc<Stored>>> {
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
    if !sent.swells() && !is_large(sent.body.len() + current.map_or(0, |current| current.body.len())) {
        return make(ctx, &sent, current);
    }
    ctx.aside.pending = Some(Pending { request: Request::of(ctx), make, sent });
    Err(ApiError::internal("the draft was not made"))
}

/// Ends a verb that may write this object as a whole: it runs again when the disk has taken most of the large objects before.
/// Small ones need no room.
pub(crate) fn await_disk(ctx: &mut Context<'_>, current: &Stored) -> ApiResult<()> {
    ctx.aside.awaits_disk = is_large(current.body.len()) && !ctx.inner.durable.has_room();
    if ctx.aside.awaits_disk { Err(ApiError::busy()) } else { Ok(()) }
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
pub(crate) async fn awaited(
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
        let Some(mut pending) = ctx.aside.pending.take() else { return outcome };
        // Until the verb has run, no other draft of the object is made: all but one would be discarded.
        let turn = turn(ctx.inner, ctx.flow).await;
        ctx.look_up()?;
        pending.request.resource = Arc::clone(&ctx.resource);
        let current = named(ctx, &ctx.store())?;
        let (done, turn) = turn.work(move || pending.done(current)).await?;
        ctx.aside.done = Some(done);
        ctx.look_up()?;
        outcome = verb(ctx);
        turn.end((ctx.aside.done.take(), ctx.aside.spent.take()));
    }
    if ctx.aside.pending.take().is_none() { outcome } else { Err(ApiError::modified(&ctx.resource, &ctx.path.name)) }
}

impl Pending {
    fn done(self, current: Option<Arc<Stored>>) -> Done {
        let Self { request, make, sent } = self;
        let mut ctx = request.context();
        let outcome = make(&mut ctx, &sent, current.as_ref());
        Done { rev: current.map(|current| current.rev), resource: ctx.resource, outcome, warnings: ctx.warnings }
    }
}

/// A request as the worker thread holds it.
struct Request {
    inner: Arc<Inner>,
    user: UserInfo,
    flow: Flow,
    resource: Arc<Resource>,
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
            resource: Arc::clone(&ctx.resource),
            path: ctx.path.clone(),
            query: ctx.query.clone(),
            verb: ctx.verb.clone(),
            now: ctx.now,
            writer: ctx.writer.clone(),
            strict: ctx.strict.clone(),
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            inner: &self.inner,
            user: &self.user,
            flow: &self.flow,
            resource: Arc::clone(&self.resource),
            path: &self.path,
            query: &self.query,
            verb: self.verb.clone(),
            now: self.now,
            warnings: Vec::new(),
            writer: self.writer.clone(),
            strict: self.strict.clone(),
            cel: cel::Asked::default(),
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
        let swells = |media: &str, body: &'static str| Sent { body: body.into(), media: media.to_owned() }.swells();
        assert!(swells(patch::JSON, "[]") && swells(patch::APPLY, "a: &a [x]\nb: [*a, *a]"));
        assert!(!swells(patch::APPLY, "a: b") && !swells(patch::MERGE, "{\"a\": \"*\"}"));
    }
}
