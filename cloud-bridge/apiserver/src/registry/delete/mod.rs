//! Deletion: at once, graceful, or waiting for finalizers, after the API server's generic store.

mod grace;
mod options;
#[cfg(test)]
mod tests;

use sampan_json::SetField;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use grace::{Graceful, before, collector_finalizers, mark_now};
pub(crate) use options::Options;

use super::answer::{Answer, Listed};
use super::context::Context;
use super::perform::await_disk;
use super::selection::Selection;
use crate::admission;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Debt, Most, Store, Stored};
use apimachinery::flow::Flow;
use apimachinery::json::remove as taken;
use apimachinery::meta;
use apimachinery::pace::{Pace, is_large};

/// Maximum objects that are read at a time for their deletion.
const SLICE: Most = Most { items: 32, bytes: 64 << 10 };
/// Maximum total size of the deleted objects that an answer shows, in bytes. Above it the answer only says that they
/// are deleted: no client reads the list, and its memory is charged to no client.
const SHOWN: usize = 128 << 10;

/// What became of the object.
pub(crate) struct Outcome {
    /// Its last or present state.
    pub object: Arc<Stored>,
    /// False while grace or finalizers hold it.
    pub deleted: bool,
}

/// DELETE of one object.
pub(crate) fn delete(ctx: &mut Context<'_>, body: &Bytes) -> ApiResult<Answer> {
    let options = Options::read(body, ctx.query)?;
    warn_of_orphans(ctx, &options);
    let inner = ctx.inner;
    let mut store = inner.store();
    let current = ctx.current(&store)?;
    // With finalizers, the deletion is an update.
    await_disk(ctx, &current)?;
    admission::delete(&ctx.attributes(), &current)?;
    let outcome = remove(&mut store, &ctx.resource, &current, &options, ctx.now)?;
    Ok(answer(&ctx.resource, outcome))
}

/// Warns a client that names no policy for dependents: it may expect another one than the kind's default.
fn warn_of_orphans(ctx: &mut Context<'_>, options: &Options) {
    if options.orphan_dependents.is_none() && options.propagation.is_none() {
        let warning = ctx.resource.rules().orphan_warning;
        ctx.warnings.extend(warning.map(str::to_owned));
    }
}

fn answer(resource: &Resource, outcome: Outcome) -> Answer {
    if !outcome.deleted || resource.rules().return_deleted_object {
        return Answer::Stored(200, outcome.object);
    }
    let mut details = json!({
        "name": outcome.object.key.name,
        "kind": resource.plural,
        "uid": meta::text(outcome.object.head(), "uid"),
    });
    if !resource.group.is_empty() {
        details.set("group", resource.group.as_ref().into());
    }
    Answer::Plain(
        200,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details }),
    )
}

/// DELETE of a collection, some objects at a time, so that other requests run in between. Deletes the objects that
/// existed at its start.
pub(crate) async fn delete_collection(ctx: &mut Context<'_>, body: &Bytes, flow: &Flow) -> ApiResult<Answer> {
    let options = Options::read(body, ctx.query)?;
    warn_of_orphans(ctx, &options);
    let selection = Selection::new(ctx)?;
    let inner = ctx.inner;
    let mut rev = inner.store().revision();
    let (mut after, mut shown) = (None, Some(Shown::default()));
    let (mut debt, mut crowded, mut written) = (Debt::default(), false, None);
    loop {
        if crowded {
            inner.durable.room().await;
        }
        if let Some(written) = written.take() {
            // If the disk fails, the answer reports it.
            let _ = inner.durable.reached(written).await;
        }
        // Each slice is a step: many such requests of one client do not delay others.
        tokio::task::yield_now().await;
        let mut step = inner.limits.steps.next(flow).await;
        let page = {
            let store = inner.store();
            if store.knows(&ctx.resource.storage, rev).is_err() {
                // It took longer than the history is kept: continue with the present objects.
                rev = store.revision();
            }
            selection.page(&store, rev, after.as_ref(), SLICE)?
        };
        crowded = !inner.durable.has_room() && page.items.iter().any(|stored| is_large(stored.body.len()));
        if crowded {
            // It is read again later, and takes no memory meanwhile.
            continue;
        }
        let before = inner.durable.bytes();
        let mut items = page.items.iter();
        loop {
            remove_some(ctx, &mut items, &options)?;
            if items.len() == 0 {
                break;
            }
            drop(step);
            tokio::task::yield_now().await;
            step = inner.limits.steps.next(flow).await;
        }
        if debt.waits(inner.durable.bytes().saturating_sub(before)) {
            written = Some(inner.store().written());
        }
        shown = shown.and_then(|shown| shown.with(page.items));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let Some(Shown { items, .. }) = shown else {
        return Ok(Answer::Plain(
            200,
            json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }),
        ));
    };
    let rev = inner.store().revision();
    Ok(Answer::List(Listed { items, rev, next: None, remaining: None }))
}

/// Deleted objects that the answer is to show.
#[derive(Default)]
struct Shown {
    items: Vec<Arc<Stored>>,
    bytes: usize,
}

impl Shown {
    /// Adds these; `None` if they exceed the limit of an answer. Kept as bytes: a parsed object takes many times as
    /// much.
    fn with(mut self, items: Vec<Arc<Stored>>) -> Option<Self> {
        for stored in items {
            self.bytes = self.bytes.saturating_add(stored.body.len());
            if self.bytes > SHOWN {
                return None;
            }
            self.items.push(stored.unparsed());
        }
        Some(self)
    }
}

/// Deletes the next ones until the time slice is over.
fn remove_some(ctx: &Context<'_>, items: &mut slice::Iter<'_, Arc<Stored>>, options: &Options) -> ApiResult<()> {
    // The slice does not include the time in which another thread has the storage.
    let (mut store, pace) = (ctx.inner.store(), Pace::default());
    while !pace.is_over()
        && let Some(stored) = items.next()
    {
        // Another client may have deleted it and created one of the same name.
        let Some(current) = store.get(&ctx.resource.storage, &stored.key)? else { continue };
        if meta::text(current.head(), "uid") != meta::text(stored.head(), "uid") {
            continue;
        }
        admission::delete(&ctx.attributes(), &current)?;
        remove(&mut store, &ctx.resource, &current, options, ctx.now)?;
    }
    Ok(())
}

/// Deletes or begins to delete an object.
pub(crate) fn remove(
    store: &mut Store,
    resource: &Resource,
    current: &Arc<Stored>,
    options: &Options,
    now: Timestamp,
) -> ApiResult<Outcome> {
    preconditions(resource, current, options)?;
    let mut options = options.clone();
    options.grace = options.grace.map(|g| if g < 0 { 1 } else { g });
    if resource.rules().spec_finalizers {
        return remove_namespace(store, resource, current, &options, now);
    }
    // Of a large object whose kind knows no grace nothing but its metadata is looked at.
    let mut object = match resource.rules().grace_period {
        Some(_) => current.value().clone(),
        None => current.head().clone(),
    };
    let graceful = match before(resource, &mut object, &mut options, now) {
        Graceful::Pending => return Ok(Outcome { object: Arc::clone(current), deleted: false }),
        Graceful::No => false,
        Graceful::Yes => true,
    };
    let mut finalizers = collector_finalizers(resource, &object, &options);
    if !meta::deleting(&object) {
        finalizers.extend(resource.rules().deletion_finalizer.map(str::to_owned));
    }
    meta::set_finalizers(&mut object, &finalizers);
    let held = !finalizers.is_empty();
    if graceful && (held || options.grace.unwrap_or(0) > 0) {
        return mark(store, resource, current, object, options.dry_run);
    }
    if held {
        mark_now(&mut object, now);
        return mark(store, resource, current, whole(current, object), options.dry_run);
    }
    if options.dry_run {
        return Ok(Outcome { object: Stored::unwritten(whole(current, object)), deleted: true });
    }
    let mut last = Arc::clone(current);
    if graceful {
        // A graceful deletion without grace is still an update first: watchers see deletionTimestamp.
        last = store.write(&resource.storage, object, Some(current), None)?;
    }
    let last = store.delete(&resource.storage, &last)?;
    Ok(Outcome { object: last, deleted: true })
}

/// The object with the metadata that a deletion has changed.
fn whole(current: &Stored, mut changed: Value) -> Value {
    let mut object = current.value().clone();
    let owners = object["metadata"]["managedFields"].clone();
    object.set("metadata", taken(&mut changed, "metadata").unwrap_or_default());
    meta::set(&mut object, "managedFields", owners);
    object
}

fn mark(
    store: &mut Store,
    resource: &Resource,
    current: &Arc<Stored>,
    object: Value,
    dry_run: bool,
) -> ApiResult<Outcome> {
    if dry_run || object == *current.value() {
        return Ok(Outcome { object: Stored::unwritten(object), deleted: false });
    }
    let stored = store.write(&resource.storage, object, Some(current), None)?;
    Ok(Outcome { object: stored, deleted: false })
}

/// Whether it is the object, and the version, that the client means.
pub(crate) fn preconditions(resource: &Resource, current: &Stored, options: &Options) -> ApiResult<()> {
    let value = current.head();
    // The API server names the kind here, not the plural.
    let conflict = |why: String| {
        let mut error = ApiError::conflict(resource, &current.key.name, &why);
        error.message = error.message.replacen(resource.plural.as_ref(), &resource.kind, 1);
        error.details.set("kind", resource.kind.as_ref().into());
        Err(error)
    };
    let uid = meta::text(value, "uid");
    if let Some(asked) = options.uid.as_deref()
        && asked != uid
    {
        return conflict(format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ));
    }
    let version = current.rev.to_string();
    if let Some(asked) = options.resource_version.as_deref()
        && asked != version
    {
        return conflict(format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        ));
    }
    Ok(())
}

/// A namespace first becomes Terminating; its controller deletes its content and removes its finalizer.
fn remove_namespace(
    store: &mut Store,
    resource: &Resource,
    current: &Arc<Stored>,
    options: &Options,
    now: Timestamp,
) -> ApiResult<Outcome> {
    let object = current.value();
    if !meta::deleting(object) {
        let mut object = object.clone();
        meta::set(&mut object, "deletionTimestamp", meta::rfc3339(now).into());
        object.set_at(&["status", "phase"], "Terminating".into());
        let finalizers = collector_finalizers(resource, &object, options);
        meta::set_finalizers(&mut object, &finalizers);
        return mark(store, resource, current, object, options.dry_run);
    }
    if object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) || !meta::finalizers(object).is_empty() {
        return Ok(Outcome { object: Arc::clone(current), deleted: false });
    }
    if options.dry_run {
        return Ok(Outcome { object: Arc::clone(current), deleted: true });
    }
    let last = store.delete(&resource.storage, current)?;
    Ok(Outcome { object: last, deleted: true })
}
