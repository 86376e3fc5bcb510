//! Replacing an object, wholly or in its status, under optimistic concurrency.

use sampan_json::SetField;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::context::Context;
use super::draft::{Change, Draft, Drafted, Owners, Sent};
use super::{cel, create, managed_fields};
use crate::admission::{self, resource_quota};
use crate::resource::Resource;
use crate::resource::object_meta;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::large;
use crate::storage::{Store, Stored};
use apimachinery::field::{FieldError, FieldErrorKind};
use apimachinery::json::remove;
use apimachinery::meta;

/// PUT.
pub(crate) fn draft(ctx: &mut Context<'_>, sent: &Sent, current: Option<&Arc<Stored>>) -> ApiResult<Drafted> {
    let mut value = ctx.decode(&sent.body, current)?;
    let dry_run = ctx.dry_run()?;
    check_name(ctx, &mut value)?;
    ctx.match_namespace(&mut value)?;
    let Some(current) = current else {
        if ctx.path.subresource.is_empty() && ctx.resource.rules().allow_create_on_update {
            ctx.may_create()?;
            return Ok(Drafted { draft: create::new(ctx, value, None)?, dry_run });
        }
        return Err(ApiError::not_found(&ctx.resource, &ctx.path.name));
    };
    let uid = meta::text(&value, "uid").to_owned();
    let uid = (!uid.is_empty()).then_some(uid);
    Ok(Drafted { draft: change(ctx, current, value, uid.as_deref(), None)?, dry_run })
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

/// The draft of a change of `current` to `new`, as the path's subresource allows it, with the managedFields that server-side apply
/// has worked out.
pub(crate) fn change(
    ctx: &Context<'_>,
    current: &Arc<Stored>,
    mut new: Value,
    uid: Option<&str>,
    managed: Option<Value>,
) -> ApiResult<Draft> {
    let (resource, name) = (&ctx.resource, &ctx.path.name);
    // A write of the status keeps the rest exactly as stored, because templates are compared.
    let old = match ctx.path.subresource.as_str() {
        "status" => resource.read(current.value()),
        _ => as_now(resource, current.value()),
    };
    ctx.bounded(&new, Some(&old))?;
    if let Some(uid) = uid
        && uid != meta::text(&old, "uid")
    {
        return Err(ApiError::conflict(resource, name, &precondition(resource, current, uid)));
    }
    check_version(resource, current, &mut new, name)?;
    // Removed until they are computed again, because nothing reads them before that.
    let sent = new.get_mut("metadata").and_then(|metadata| remove(metadata, "managedFields"));
    let sent = sent.filter(|_| managed.is_none()).unwrap_or_default();
    resource.strategy().default(&mut new);
    // The object is prepared where it is, because a copy of a large one takes megabytes: what admission and `replace`
    // do to it later changes nothing of this.
    let is_prepared = ctx.foresees && (managed.is_none() || resource.strategy().has_patterns());
    let mut judged = None;
    if is_prepared {
        prepare(ctx, &mut new, &old);
        judged = resource.strategy().foresee(&ctx.path.subresource, &new, Some(&old));
    }
    let owners = match managed {
        Some(managed) => Owners::Applied(managed),
        None if is_prepared => foreseen(ctx, &sent, &mut new, &old),
        None => Owners::Unknown,
    };
    let old = match old {
        Cow::Owned(old) => Some(old),
        Cow::Borrowed(_) => None,
    };
    Ok(Draft::Change(Box::new(Change { current: Arc::clone(current), old, new, sent, owners, foreseen: judged })))
}

/// The owners of what will be stored of a prepared object if admission changes nothing.
fn foreseen(ctx: &Context<'_>, sent: &Value, new: &mut Value, old: &Value) -> Owners {
    keep(ctx, new, old);
    let managed = managed_fields::updated(ctx, sent, new, old);
    Owners::Foreseen(hash(new), managed)
}

/// Hash of an object, kept instead of it to detect changes. With a key of this process, so that no client can create
/// two objects with one hash.
fn hash(object: &Value) -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEYS.hash_one(object)
}

/// Restores the fields that a client may not write through this path.
fn prepare(ctx: &Context<'_>, new: &mut Value, old: &Value) {
    let strategy = ctx.resource.strategy();
    meta::set(new, "generation", old["metadata"]["generation"].clone());
    match ctx.path.subresource.as_str() {
        "status" => return strategy.prepare_status_update(new, old),
        "" => strategy.prepare_update(new, old),
        part => strategy.prepare_part_update(part, new, old),
    }
    raise_generation(&ctx.resource, new, old);
}

/// Restores the fields that no client may write.
fn keep(ctx: &Context<'_>, new: &mut Value, old: &Value) {
    meta::keep_old(new, old);
    if ctx.path.subresource == "status" {
        // Subresource updates end where the main resource's deletion rules begin.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"] {
            meta::set(new, field, old["metadata"][field].clone());
        }
    }
}

/// Replaces an object, and returns the stored one.
pub(crate) fn replace(
    ctx: &mut Context<'_>,
    store: &mut Store,
    change: Change,
    dry_run: bool,
) -> ApiResult<Arc<Stored>> {
    let Change { current, old, mut new, sent, owners, foreseen } = change;
    let (current, old) = (&current, old.as_ref().unwrap_or_else(|| current.value()));
    let resource = Arc::clone(&ctx.resource);
    let name = ctx.path.name.clone();
    let strategy = resource.strategy();
    admission::update(store, &ctx.attributes(), &mut new, old)?;
    prepare(ctx, &mut new, old);
    // After omitted fields were copied: only then it is known what must be allocated.
    admission::allocate(&ctx.attributes(), store, &mut new, old)?;
    keep(ctx, &mut new, old);
    strategy.recall(foreseen);
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
    let owned = &old["metadata"]["managedFields"];
    let managed = match owners {
        Owners::Applied(managed) => managed,
        Owners::Foreseen(foreseen, managed) if foreseen == hash(&new) => managed,
        _ => managed_fields::updated(ctx, &sent, &new, old),
    };
    let managed = large::owners(&resource.storage, managed);
    if meta::same_but_owners(&new, old) && managed_fields::same_owners(&managed, owned) {
        meta::set(&mut new, "managedFields", owned.clone());
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

/// The stored object by the present rules: a bridge of an earlier version may have written it with other defaults.
/// Kubernetes sets defaults whenever it reads its storage. Borrowed if both are equal.
fn as_now<'a>(resource: &Resource, stored: &'a Value) -> Cow<'a, Value> {
    let read = resource.read(stored);
    if resource.is_custom() {
        return read;
    }
    let mut now = meta::without_owners(&read);
    resource.strategy().default(&mut now);
    if meta::same_but_owners(&now, stored) {
        return Cow::Borrowed(stored);
    }
    meta::set(&mut now, "managedFields", read["metadata"]["managedFields"].clone());
    Cow::Owned(now)
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
    errors.retain(|error| !is_from_before(error, new, old));
    errors
}

/// Whether an error is about a list or selector that is too long and as it was: there was no limit when it was stored.
fn is_from_before(error: &FieldError, new: &Value, old: &Value) -> bool {
    if error.kind != FieldErrorKind::TooMany {
        return false;
    }
    let pointer = format!("/{}", error.field.replace(['.', '['], "/").replace(']', ""));
    new.pointer(&pointer).is_some_and(|now| old.pointer(&pointer) == Some(now))
}

/// An object that waits only for finalizers is deleted with the last of them.
fn should_delete(resource: &Resource, new: &Value, old: &Value) -> bool {
    let held = resource.rules().spec_finalizers && new["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    meta::finalizers(new).is_empty() && meta::deleting(old) && meta::grace(old).unwrap_or(0) == 0 && !held
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_that_was_too_large_before_may_stay() {
        let kinds = crate::kinds::resources();
        let values = |count: usize| (0..count).map(|n| format!("v{n}")).collect::<Value>();
        let selector = |count: usize| {
            json!({"matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "c", "operator": "NotIn", "values": values(count)}]})
        };
        let wrong = |kind: &str, old: &Value, new: &Value| {
            let resource = kinds.iter().find(|one| one.kind == kind).unwrap();
            let whole = |object: &Value| {
                let mut object = object.clone();
                object["metadata"] = json!({"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1",
                    "creationTimestamp": "2026-01-01T00:00:00Z"});
                resource.strategy().default(&mut object);
                object
            };
            let errors = validate(resource, "", &whole(new), &whole(old));
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        let set = |count: usize, replicas: usize| {
            let template = json!({"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}});
            json!({"spec": {"replicas": replicas, "selector": selector(count), "template": template}})
        };
        assert_eq!(wrong("ReplicaSet", &set(5000, 1), &set(5000, 2)), [""; 0]);
        let policy = |count: usize, types: &str| {
            let peer = json!({"from": [{"podSelector": selector(count)}]});
            json!({"spec": {"podSelector": {}, "policyTypes": [types], "ingress": [peer]}})
        };
        assert_eq!(wrong("NetworkPolicy", &policy(5000, "Ingress"), &policy(5000, "Egress")), [""; 0]);
        let changed = wrong("NetworkPolicy", &policy(5000, "Ingress"), &policy(5001, "Ingress"));
        assert_eq!(changed, ["spec.ingress[0].from[0].podSelector"]);
    }

    #[test]
    fn defaults_of_now_hold_for_what_was_stored_before() {
        let volumes = crate::kinds::resources().into_iter().find(|one| one.kind == "PersistentVolume").unwrap();
        let volume = |share: Value| json!({"metadata": {"name": "v"}, "spec": {"nfs": share}});
        let stored = volume(json!({"server": "s", "path": "/", "readOnly": false}));
        let mut new = volume(json!({"server": "s", "path": "/"}));
        volumes.strategy().default(&mut new);
        assert_eq!(as_now(&volumes, &stored)["spec"], new["spec"], "a client in Go leaves out what is false");
        assert!(matches!(as_now(&volumes, &new), Cow::Borrowed(_)), "there is no second one of what has all defaults");
    }

    #[test]
    fn hash_tells_objects_apart() {
        let object: Value = serde_json::from_str(r#"{"b": [1, -0.5, "x"], "a": {"c": null}}"#).unwrap();
        assert_eq!(hash(&object), hash(&json!({"a": {"c": null}, "b": [1, -0.5, "x"]})));
        for other in [json!({"a": {"c": null}, "b": [1, -0.5, "x", "x"]}), json!({"b": [1, -0.5, "x"]}), json!(null)] {
            assert_ne!(hash(&object), hash(&other), "{other}");
        }
    }
}
