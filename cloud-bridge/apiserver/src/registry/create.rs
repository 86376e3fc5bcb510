//! Creating an object.

use std::sync::Arc;

use serde_json::Value;

use super::context::Context;
use super::draft::{Draft, Drafted, New, Sent};
use super::{cel, managed_fields};
use crate::admission::{self, resource_quota};
use crate::resource::object_meta;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::large;
use crate::storage::{Store, Stored};
use apimachinery::json::remove;
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// How often a generated name may collide before the client hears of it.
const NAME_ATTEMPTS: usize = 8;

/// POST.
pub(crate) fn draft(ctx: &mut Context<'_>, sent: &Sent, _current: Option<&Arc<Stored>>) -> ApiResult<Drafted> {
    let value = ctx.decode(&sent.body, None)?;
    let dry_run = ctx.dry_run()?;
    Ok(Drafted { draft: new(ctx, value, None)?, dry_run })
}

/// The draft of a decoded object, with the managedFields that server-side apply has worked out.
pub(crate) fn new(ctx: &Context<'_>, mut value: Value, managed: Option<Value>) -> ApiResult<Draft> {
    ctx.bounded(&value, None)?;
    ctx.match_namespace(&mut value)?;
    if !meta::text(&value, "resourceVersion").is_empty() {
        return Err(ApiError::unknown("resourceVersion should not be set on objects to be created"));
    }
    let sent = value.get_mut("metadata").and_then(|metadata| remove(metadata, "managedFields")).unwrap_or_default();
    ctx.resource.strategy().default(&mut value);
    let managed = managed.unwrap_or_else(|| managed_fields::created(ctx, &value, sent));
    let strategy = ctx.resource.strategy();
    let mut foreseen = None;
    if ctx.foresees && strategy.has_patterns() {
        // It is done again when the object is stored, and changes nothing then.
        strategy.prepare_create(&mut value);
        foreseen = strategy.foresee("", &value, None);
    }
    Ok(Draft::New(New { value, managed, foreseen }))
}

/// Creates an object.
pub(crate) fn insert(ctx: &mut Context<'_>, store: &mut Store, new: New, dry_run: bool) -> ApiResult<Arc<Stored>> {
    let New { mut value, managed, foreseen } = new;
    let resource = Arc::clone(&ctx.resource);
    let strategy = resource.strategy();
    if let Err(refused) = admission::create(store, &ctx.attributes(), &mut value) {
        let awaits = admission::awaits_account(store, &ctx.attributes(), &value)?;
        ctx.awaits_account = awaits;
        return Err(refused);
    }
    meta::fill_new(&mut value, ctx.now);
    let generated = meta::text(&value, "name").is_empty() && !meta::text(&value, "generateName").is_empty();
    if generated {
        let name = ctx.cel.name(|| meta::generate_name(meta::text(&value, "generateName")));
        meta::set(&mut value, "name", name.into());
    }
    if resource.has_generation {
        meta::set(&mut value, "generation", 1.into());
    }
    strategy.prepare_create(&mut value);
    let mut errors = object_meta::validate_object_meta(&value, &resource);
    strategy.recall(foreseen);
    errors.extend(strategy.validate_create(&value));
    cel::check(ctx, &value, None, &mut errors)?;
    if !errors.is_empty() {
        return Err(ApiError::invalid(&resource, meta::text(&value, "name"), &errors));
    }
    let warnings = admission::validate(store, &ctx.attributes(), &value, None)?;
    ctx.warnings.extend(warnings);
    ctx.warnings.extend(strategy.warnings(&value));
    ctx.warnings.extend(strategy.notice());
    let charges = resource_quota::admit(store, &ctx.attributes(), &value, None, ctx.now)?;
    meta::set(&mut value, "managedFields", large::owners(&ctx.resource.storage, managed));
    let value = named(ctx, store, value, generated)?;
    if dry_run {
        return Ok(Stored::unwritten(value));
    }
    ctx.inner.quotas.admit(ctx.user, &ctx.resource)?;
    resource_quota::write(store, charges)?;
    let stored = store.write(&resource.storage, value, None, resource.life())?;
    ctx.inner.quotas.charge(ctx.user, &resource, &stored);
    Ok(stored)
}

/// The object with a name that is free.
fn named(ctx: &Context<'_>, store: &Store, mut value: Value, generated: bool) -> ApiResult<Value> {
    let resource = &ctx.resource;
    for attempt in 1.. {
        let key = ObjectKey::of(&value);
        let Some(existing) = store.get(&resource.storage, &key)? else { break };
        if generated && attempt < NAME_ATTEMPTS {
            let name = meta::generate_name(meta::text(&value, "generateName"));
            meta::set(&mut value, "name", name.into());
            continue;
        }
        let mut error = ApiError::already_exists(resource, &key.name);
        if meta::deleting(existing.value()) {
            error.message = format!("object is being deleted: {}", error.message);
        }
        return Err(error);
    }
    Ok(value)
}
