//! Replacing an object, wholly or in its status, under optimistic concurrency.

use edge_protocol::json::SetField;
use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::{Answer, Context, create};
use super::{cel, managed_fields};
use crate::admission::{self, resource_quota};
use crate::resource::Resource;
use crate::resource::object_meta;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Store, Stored};
use apimachinery::field::FieldError;
use apimachinery::meta;

/// PUT.
pub(crate) fn update(ctx: &mut Context<'_>, body: &Bytes) -> ApiResult<Answer> {
    let mut value = ctx.decode(body)?;
    let dry_run = ctx.dry_run()?;
    check_name(ctx, &mut value)?;
    ctx.match_namespace(&mut value)?;
    let inner = ctx.inner;
    let mut store = inner.store();
    let current = store.get(&ctx.resource.storage, &ctx.key())?;
    let Some(current) = current else {
        if ctx.path.subresource.is_empty() && ctx.resource.rules().allow_create_on_update {
            ctx.may_create()?;
            return Ok(Answer::Stored(201, create::create_value(ctx, &mut store, value, dry_run)?));
        }
        return Err(ApiError::not_found(&ctx.resource, &ctx.path.name));
    };
    let uid = meta::text(&value, "uid").to_owned();
    let uid = (!uid.is_empty()).then_some(uid);
    Ok(Answer::Stored(200, replace(ctx, &mut store, &current, value, uid.as_deref(), dry_run)?))
}

fn check_name(ctx: &Context<'_>, value: &mut Value) -> ApiResult<()> {
    let name = meta::text(value, "name");
    if name.is_empty() {
        let name = ctx.path.name.clone();
        meta::set(value, "name", name.into());
    } else if name != ctx.path.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            ctx.path.name
        )));
    }
    Ok(())
}

/// Replaces `current` by `new` as the path's subresource allows, and returns what is stored then.
pub(crate) fn replace(
    ctx: &mut Context<'_>,
    store: &mut Store,
    current: &Arc<Stored>,
    mut new: Value,
    uid: Option<&str>,
    dry_run: bool,
) -> ApiResult<Arc<Stored>> {
    let resource = Arc::clone(&ctx.resource);
    let status = ctx.path.subresource == "status";
    // Who writes a status leaves the rest as it is stored, to the letter: templates are compared.
    let old = if status { resource.read(current.value()) } else { as_now(&resource, current.value()) };
    let old = old.as_ref();
    ctx.bounded(&new, Some(old))?;
    let name = ctx.path.name.clone();
    if let Some(uid) = uid
        && uid != meta::text(old, "uid")
    {
        return Err(ApiError::conflict(&resource, &name, &precondition(&resource, current, uid)));
    }
    check_version(&resource, current, &mut new, &name)?;
    let strategy = resource.strategy();
    let sent = new["metadata"]["managedFields"].clone();
    strategy.default(&mut new);
    admission::update(store, &ctx.attributes(), &mut new, old)?;
    meta::set(&mut new, "generation", old["metadata"]["generation"].clone());
    if status {
        strategy.prepare_status_update(&mut new, old);
    } else if ctx.path.subresource.is_empty() {
        strategy.prepare_update(&mut new, old);
        raise_generation(&resource, &mut new, old);
    } else {
        strategy.prepare_part_update(&ctx.path.subresource, &mut new, old);
        raise_generation(&resource, &mut new, old);
    }
    // After what the request leaves out was taken over: only then is it known what is wanted anew.
    admission::allocate(&ctx.attributes(), store, &mut new, old)?;
    meta::keep_old(&mut new, old);
    if status {
        // Subresource updates end where the main resource's deletion rules begin.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"] {
            meta::set(&mut new, field, old["metadata"][field].clone());
        }
    }
    let mut errors = validate(&resource, &ctx.path.subresource, &new, old);
    cel::check(ctx, &new, Some(old), &mut errors)?;
    if !errors.is_empty() {
        return Err(ApiError::invalid(&resource, &name, &errors));
    }
    let warnings = admission::validate(store, &ctx.attributes(), &new, Some(old))?;
    ctx.warnings.extend(warnings);
    if ctx.path.subresource.is_empty() {
        ctx.warnings.extend(strategy.update_warnings(&new));
    }
    ctx.warnings.extend(strategy.notice());
    let charges = resource_quota::admit(store, &ctx.attributes(), &new, Some(old), ctx.now)?;
    let owners = &old["metadata"]["managedFields"];
    meta::set(&mut new, "managedFields", owners.clone());
    let managed = ctx.managed.take().unwrap_or_else(|| managed_fields::updated(ctx, &sent, &new, old));
    if new == *old && managed_fields::same_owners(&managed, owners) {
        return Ok(Stored::unwritten(new));
    }
    meta::set(&mut new, "managedFields", managed);
    if should_delete(&resource, &new, old) {
        if !dry_run {
            store.delete(&resource.storage, current)?;
        }
        return Ok(Stored::unwritten(new));
    }
    if dry_run {
        return Ok(Stored::unwritten(new));
    }
    ctx.inner.quotas.admit(ctx.user, &ctx.resource)?;
    resource_quota::write(store, charges)?;
    let stored = store.write(&resource.storage, new, Some(current), resource.life())?;
    ctx.inner.quotas.charge(ctx.user, &ctx.resource, &stored);
    Ok(stored)
}

/// What is stored, by the rules of now: a bridge of an earlier version may have written it, with other defaults. Kubernetes
/// fills in defaults whenever it reads its storage.
fn as_now<'a>(resource: &Resource, stored: &'a Value) -> Cow<'a, Value> {
    let mut read = resource.read(stored);
    if !resource.is_custom() {
        resource.strategy().default(read.to_mut());
    }
    read
}

fn check_version(resource: &Resource, current: &Stored, new: &mut Value, name: &str) -> ApiResult<()> {
    let version = meta::text(new, "resourceVersion");
    if version.is_empty() || version == "0" {
        if !resource.rules().allow_unconditional_update {
            // The API server reports this one with the plural in place of the kind.
            let error = FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            let mut error = ApiError::invalid(resource, name, &[error]);
            error.message = error.message.replacen(resource.kind.as_ref(), &resource.plural, 1);
            error.details.set("kind", resource.plural.as_ref().into());
            return Err(error);
        }
        meta::set(new, "resourceVersion", current.rev.to_string().into());
        return Ok(());
    }
    match version.parse::<u64>() {
        Ok(version) if version == current.rev => Ok(()),
        Ok(_) => Err(ApiError::modified(resource, name)),
        Err(_) => {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &version.into(),
                "strconv.ParseUint: parsing: invalid syntax",
            );
            Err(ApiError::invalid(resource, name, &[error]))
        }
    }
}

/// The storage's text for a uid that does not match.
pub(crate) fn precondition(resource: &Resource, current: &Stored, uid: &str) -> String {
    let mut path = format!("/registry/{}", resource.storage);
    if !current.key.namespace.is_empty() {
        path = format!("{path}/{}", current.key.namespace);
    }
    format!(
        "StorageError: invalid object, Code: 4, Key: {path}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
        current.key.name,
        meta::text(current.value(), "uid")
    )
}

fn raise_generation(resource: &Resource, new: &mut Value, old: &Value) {
    if resource.has_generation && resource.strategy().generation_changed(new, old) {
        let next = old["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
        meta::set(new, "generation", next.into());
    }
}

fn validate(resource: &Resource, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_meta::validate_object_meta(new, resource);
    errors.extend(object_meta::validate_object_meta_update(new, old));
    let strategy = resource.strategy();
    errors.extend(match subresource {
        "status" => strategy.validate_status_update(new, old),
        "" => strategy.validate_update(new, old),
        part => strategy.validate_part_update(part, new, old),
    });
    errors
}

/// An object whose deletion waits for nothing but finalizers goes with the last of them.
fn should_delete(resource: &Resource, new: &Value, old: &Value) -> bool {
    let held = resource.rules().spec_finalizers && new["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    meta::finalizers(new).is_empty() && meta::deleting(old) && meta::grace(old).unwrap_or(0) == 0 && !held
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_of_now_hold_for_what_was_stored_before() {
        let volumes = crate::kinds::resources().into_iter().find(|one| one.kind == "PersistentVolume").unwrap();
        let volume = |share: Value| json!({"metadata": {"name": "v"}, "spec": {"nfs": share}});
        let stored = volume(json!({"server": "s", "path": "/", "readOnly": false}));
        let mut new = volume(json!({"server": "s", "path": "/"}));
        volumes.strategy().default(&mut new);
        assert_eq!(as_now(&volumes, &stored)["spec"], new["spec"], "a client in Go leaves out what is false");
    }
}
