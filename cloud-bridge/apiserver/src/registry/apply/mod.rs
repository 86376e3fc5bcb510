//! Server-side apply: an applier owns the fields it sets; what it no longer sets goes, what another applier
//! owns conflicts. Fields that were written otherwise than by apply have no owner here, so they never conflict.

mod body;

use edge_protocol::json::SetField;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Answer, Context, create, update};
use crate::codec::decode;
use crate::patch::fields;
use crate::patch::fields::Fields;
use crate::patch::places::{self, Places};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::field::FieldError;
use apimachinery::meta;

/// PATCH with `application/apply-patch+yaml`.
pub(crate) fn apply(ctx: &mut Context<'_>, body: &Bytes, dry_run: bool) -> ApiResult<Answer> {
    let manager = ctx.query.text("fieldManager").to_owned();
    if manager.is_empty() {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(ApiError::options("PatchOptions", &error));
    }
    let (mut applied, strict) = body::read(ctx, body)?;
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
    // Structures that are always there are nobody's wish.
    if let Some(map) = applied.as_object_mut() {
        map.retain(|_, value| value.as_object().is_none_or(|fields| !fields.is_empty()));
    }
    let resource = std::sync::Arc::clone(&ctx.resource);
    let keys = |names: &[&str]| resource.strategy().list_keys(names);
    let set = fields::collect(&applied, &keys);
    let inner = ctx.inner;
    let mut store = inner.store();
    let current = store.get(&resource.storage, &ctx.key())?;
    let Some(current) = current else {
        if !ctx.path.subresource.is_empty() {
            return Err(ApiError::not_found(&resource, &ctx.path.name));
        }
        ctx.may_create()?;
        ctx.managed = Some(json!([entry(ctx, &manager, &set)]));
        duplicates(ctx, strict)?;
        return Ok(Answer::Object(201, create::create_value(ctx, &mut store, applied, dry_run)?));
    };
    let live = resource.read(current.value());
    let live = live.as_ref();
    let mut entries = live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let own = |entry: &Value| {
        entry["manager"] == manager.as_str()
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str().unwrap_or_default() == ctx.path.subresource
    };
    let before = entries.iter().find(|e| own(e)).map(|e| fields::from_json(&e["fieldsV1"])).unwrap_or_default();
    entries.retain(|e| !own(e));
    settle(live, &applied, &set, &mut entries, ctx.query.flag("force"))?;
    let others: Fields = entries.iter().flat_map(|e| fields::from_json(&e["fieldsV1"])).collect();
    let mut merged = live.clone();
    fields::merge(&mut merged, &applied, &keys, &mut Vec::new());
    give_up(&mut merged, &before, &set, &others);
    decode::drop_empty(&mut merged);
    let version = meta::text(&applied, "resourceVersion");
    if version.is_empty() {
        meta::set(&mut merged, "resourceVersion", current.rev.to_string().into());
    }
    entries.push(entry(ctx, &manager, &set));
    duplicates(ctx, strict)?;
    ctx.managed = Some(json!(entries));
    let uid = meta::text(&applied, "uid");
    if !uid.is_empty() {
        // What is merged has the live object's: validation refuses any other.
        meta::set(&mut merged, "uid", uid.into());
    }
    Ok(Answer::Object(200, update::replace(ctx, &mut store, &current, merged, None, dry_run)?))
}

/// What field validation makes of keys that stand twice: known only after conflicts, as the API server has it.
fn duplicates(ctx: &mut Context<'_>, strict: Result<(), String>) -> ApiResult<()> {
    let Err(why) = strict else { return Ok(()) };
    match ctx.query.text("fieldValidation") {
        "Strict" => return Err(ApiError::bad_request(format!("error strict decoding YAML: {why}"))),
        "Ignore" => {}
        _ => ctx.warnings.push(why),
    }
    Ok(())
}

fn entry(ctx: &Context<'_>, manager: &str, set: &Fields) -> Value {
    let mut entry = json!({
        "manager": manager,
        "operation": "Apply",
        "apiVersion": ctx.resource.api_version(),
        "time": meta::rfc3339(ctx.now),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields::to_json(set),
    });
    if !ctx.path.subresource.is_empty() {
        entry.set("subresource", ctx.path.subresource.as_str().into());
    }
    entry
}

/// Finds fields that others own with another value: a conflict, or theirs no longer when forced.
fn settle(live: &Value, applied: &Value, set: &Fields, entries: &mut Vec<Value>, force: bool) -> ApiResult<()> {
    let mut conflicts: Vec<(String, String)> = Vec::new();
    let (is, wanted) = (Places::new(live), Places::new(applied));
    for entry in entries.iter_mut() {
        let theirs = fields::from_json(&entry["fieldsV1"]);
        let lost: BTreeSet<_> =
            set.intersection(&theirs).filter(|path| is.at(path) != wanted.at(path)).cloned().collect();
        let name = entry["manager"].as_str().unwrap_or_default().to_owned();
        conflicts.extend(
            lost.iter().filter(|p| p.last().is_none_or(|s| s != ".")).map(|p| (name.clone(), fields::shown(p))),
        );
        if force && !lost.is_empty() {
            entry.set("fieldsV1", fields::to_json(&theirs.difference(&lost).cloned().collect()));
        }
    }
    if force || conflicts.is_empty() {
        entries.retain(|e| e["fieldsV1"].as_object().is_some_and(|f| !f.is_empty()));
        return Ok(());
    }
    Err(conflict(&conflicts))
}

fn conflict(conflicts: &[(String, String)]) -> ApiError {
    let plural = if conflicts.len() == 1 { "" } else { "s" };
    let mut text = format!("Apply failed with {} conflict{plural}: ", conflicts.len());
    let mut managers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (manager, path) in conflicts {
        managers.entry(manager).or_default().push(path);
    }
    let parts: Vec<String> = managers
        .iter()
        .map(|(manager, paths)| match paths.as_slice() {
            [one] => format!("conflict with {manager:?}: {one}"),
            many => format!("conflicts with {manager:?}:\n- {}", many.join("\n- ")),
        })
        .collect();
    text += &parts.join("\n");
    let mut error = ApiError::bad_request(text);
    error.code = 409;
    error.reason = "Conflict";
    for (manager, path) in conflicts {
        error = error.with_cause("FieldManagerConflict", &format!("conflict with {manager:?}"), path);
    }
    error
}

/// Removes what the manager set before and no longer does, unless somebody else owns it.
fn give_up(merged: &mut Value, before: &Fields, set: &Fields, others: &Fields) {
    let gone = before.difference(set).filter(|path| {
        let item = path.last().is_some_and(|s| s == ".");
        let stem: &[String] = if item { &path[..path.len() - 1] } else { path };
        // What begins with the stem comes right behind it in the order of the sets.
        let within = |fields: &Fields| {
            let mut from = fields.range::<[String], _>((Bound::Included(stem), Bound::Unbounded));
            from.next().is_some_and(|other| other.starts_with(stem))
        };
        !within(set) && !within(others)
    });
    places::remove(merged, gone);
}
