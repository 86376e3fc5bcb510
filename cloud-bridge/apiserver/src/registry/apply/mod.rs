//! Server-side apply: an applier owns the fields it sets. Fields that it no longer sets are removed, and fields of
//! other owners with another value conflict (structured-merge-diff merge/update.go, apimachinery
//! pkg/util/managedfields/internal).

mod body;
mod conflict;
mod last_applied;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::context::Context;
use super::draft::Draft;
use super::managed_fields::entries::{Entries, Operation, Owner};
use super::managed_fields::writer::Writer;
use super::{create, managed_fields, update};
use crate::codec::decode;
use crate::patch::budget::TooManyFields;
use crate::patch::changes::Changes;
use crate::patch::field_set::FieldSet;
use crate::patch::merge;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Stored;
use apimachinery::field::FieldError;
use apimachinery::meta;
use body::Body;

/// Manager that owns the fields of an untracked object when it is first applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// PATCH with `application/apply-patch+yaml`.
pub(crate) fn draft(ctx: &mut Context<'_>, body: &Bytes, current: Option<&Arc<Stored>>) -> ApiResult<Draft> {
    named(ctx)?;
    let Body { object: mut applied, config, strict } = body::read(ctx, body)?;
    if meta::text(&applied, "name").is_empty() {
        let name = ctx.path.name.clone();
        meta::set(&mut applied, "name", name.into());
    }
    if meta::text(&applied, "name") != ctx.path.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::text(&applied, "name"),
            ctx.path.name
        )));
    }
    ctx.match_namespace(&mut applied)?;
    let resource = Arc::clone(&ctx.resource);
    // Structures that are always present were not chosen by the client.
    if let Some(map) = applied.as_object_mut() {
        let always = |name: &str| resource.rules().structures.contains(&name);
        map.retain(|name, value| !always(name) || value.as_object().is_none_or(|fields| !fields.is_empty()));
    }
    let set = FieldSet::of(&applied, resource.strategy().shape(), &mut ctx.field_budget()).map_err(too_many)?;
    let Some(current) = current else {
        if !ctx.path.subresource.is_empty() {
            return Err(ApiError::not_found(&resource, &ctx.path.name));
        }
        ctx.may_create()?;
        not_recreated(&resource, &ctx.path.name, &applied)?;
        let mut entries = Entries::default();
        own(ctx, &mut entries, set)?;
        duplicates(ctx, strict)?;
        return create::new(ctx, applied, Some(entries.write()));
    };
    let (version, uid) = (meta::text(&applied, "resourceVersion").to_owned(), meta::text(&applied, "uid").to_owned());
    let (mut merged, entries) = laid_over(ctx, &resource.read(current.value()), applied, set)?;
    let managed = entries.write();
    if let Some(config) = config {
        last_applied::refresh(&mut merged, config);
    }
    if !resource.is_custom() {
        decode::drop_empty(&mut merged);
    }
    if version.is_empty() {
        meta::set(&mut merged, "resourceVersion", current.rev.to_string().into());
    }
    duplicates(ctx, strict)?;
    if !uid.is_empty() {
        // The merged object has the live one's uid: validation refuses any other.
        meta::set(&mut merged, "uid", uid.into());
    }
    update::change(ctx, current, merged, None, Some(managed))
}

/// Appliers have a name.
fn named(ctx: &Context<'_>) -> ApiResult<()> {
    if ctx.query.text("fieldManager").is_empty() {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(ApiError::options("PatchOptions", &error));
    }
    Ok(())
}

/// Applies a part of the live object, which the context's writer writes by a subresource. Returns the object as it is then,
/// without managedFields, and these.
///
/// # Errors
/// An applier without a name, and conflicts.
pub(crate) fn part(ctx: &Context<'_>, live: &Value, applied: Value) -> ApiResult<(Value, Value)> {
    named(ctx)?;
    let set = FieldSet::of(&applied, ctx.resource.strategy().shape(), &mut ctx.field_budget()).map_err(too_many)?;
    let (merged, entries) = laid_over(ctx, live, applied, set)?;
    Ok((merged, entries.write()))
}

/// Refuses to create an object with a given uid: that object is deleted (apiserver endpoints/handlers/patch.go,
/// `applyPatch`).
fn not_recreated(resource: &Resource, name: &str, applied: &Value) -> ApiResult<()> {
    match meta::text(applied, "uid") {
        "" => Ok(()),
        uid => {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            Err(ApiError::conflict(resource, name, &why))
        }
    }
}

/// The live object merged with the applied one, without managedFields, and the owners of its fields.
fn laid_over(ctx: &Context<'_>, live: &Value, applied: Value, set: FieldSet) -> ApiResult<(Value, Entries)> {
    let shape = ctx.resource.strategy().shape();
    let mut entries = tracked(ctx, live).map_err(too_many)?;
    let last = entries.take(&ctx.writer.owner(Operation::Apply, &ctx.resource));
    let mut merged = meta::without_owners(live);
    merge::merge(&mut merged, applied, shape);
    if let Some(last) = last {
        merge::prune(&mut merged, &last.set, &entries.all().union(&set), shape);
    }
    let changes = Changes::between(live, &merged, shape, &mut ctx.change_budget()).map_err(too_many)?;
    let written = managed_fields::ownable(ctx, changes.written());
    let conflicts = conflict::find(&entries, &written);
    if !conflicts.is_empty() && !ctx.query.flag("force") && !may_take_over(ctx, live, &conflicts) {
        return Err(conflict::refusal(&conflicts));
    }
    entries.disown(&written);
    entries.disown(&managed_fields::ownable(ctx, changes.removed));
    own(ctx, &mut entries, set)?;
    Ok((merged, entries))
}

/// The field owners of the live object. All fields of an untracked object count as one update.
fn tracked(ctx: &Context<'_>, live: &Value) -> Result<Entries, TooManyFields> {
    let entries = Entries::read(&live["metadata"]["managedFields"], ctx.field_budget())?.unwrap_or_default();
    if !entries.0.is_empty() {
        return Ok(entries);
    }
    let shape = ctx.resource.strategy().shape();
    let changes = Changes::between(&json!({}), live, shape, &mut ctx.field_budget())?;
    let owner = Writer::new(BEFORE_FIRST_APPLY, "", &ctx.path.subresource).owner(Operation::Update, &ctx.resource);
    let mut entries = Entries::default();
    entries.add(owner, managed_fields::ownable(ctx, changes.added), &meta::rfc3339(ctx.now));
    Ok(entries)
}

/// Makes the applier the owner of the fields it set.
fn own(ctx: &Context<'_>, entries: &mut Entries, set: FieldSet) -> ApiResult<()> {
    let owner = ctx.writer.owner(Operation::Apply, &ctx.resource);
    entries.add(owner, managed_fields::ownable(ctx, set), &meta::rfc3339(ctx.now));
    entries.within(ctx.field_budget()).map_err(too_many)
}

/// Whether kubectl meets in these conflicts only what its own client-side apply set.
fn may_take_over(ctx: &Context<'_>, live: &Value, conflicts: &[(Owner, FieldSet)]) -> bool {
    if ctx.writer.manager() != last_applied::MANAGER {
        return false;
    }
    let Some(unchanged) = last_applied::unchanged(ctx, live) else { return false };
    conflicts.iter().all(|(_, fields)| fields.difference(&unchanged).is_empty())
}

fn too_many(_: TooManyFields) -> ApiError {
    body::too_large("fields")
}

/// Field validation of duplicate keys: only after conflicts, as in the API server.
fn duplicates(ctx: &mut Context<'_>, strict: Result<(), String>) -> ApiResult<()> {
    let Err(why) = strict else { return Ok(()) };
    match ctx.query.text("fieldValidation") {
        "Strict" => return Err(ApiError::bad_request(format!("error strict decoding YAML: {why}"))),
        "Ignore" => {}
        _ => ctx.warnings.push(why),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_that_is_gone_is_not_made_anew_by_its_uid() {
        let pods = crate::kinds::resources().into_iter().find(|one| one.kind == "Pod").unwrap();
        assert_eq!(not_recreated(&pods, "p", &json!({"metadata": {"name": "p"}})), Ok(()));
        let refused = not_recreated(&pods, "p", &json!({"metadata": {"name": "p", "uid": "u"}})).unwrap_err();
        let why = "Operation cannot be fulfilled on pods \"p\": uid mismatch: the provided object specified uid u, \
            and no existing object was found";
        assert_eq!((refused.code, refused.message.as_str()), (409, why));
    }
}
