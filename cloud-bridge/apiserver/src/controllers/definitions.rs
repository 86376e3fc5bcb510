//! Custom resource definitions: what each of them serves, and their life from Established to the last object.

use edge_protocol::json::SetField;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::garbage_collector;
use crate::kinds::custom::strategy::Custom;
use crate::kinds::custom::{FINALIZER, STORAGE};
use crate::registry::delete::{Options, SLICE};
use crate::registry::write;
use crate::resource::status::ApiResult;
use crate::resource::{ALL_VERBS, Hooks, Resource, STATUS_VERBS, Serves, Subresource, Text};
use crate::state::work::Work;
use crate::state::{Change, Inner};
use crate::storage::{Store, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

fn text(value: &Value) -> Text {
    Text::from(value.as_str().unwrap_or_default().to_owned())
}

fn texts(value: &Value) -> Vec<Text> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// The resources that a definition serves, one per version.
pub(crate) fn resources(definition: &Value) -> Vec<Arc<Resource>> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let storage =
        format!("{}.{}", names["plural"].as_str().unwrap_or_default(), spec["group"].as_str().unwrap_or_default());
    let versions = spec["versions"].as_array();
    versions
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true)
        .map(|version| Arc::new(resource(spec, version, &storage)))
        .collect()
}

fn resource(spec: &Value, version: &Value, storage: &str) -> Resource {
    let names = &spec["names"];
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        subresources.push(Subresource {
            name: "status".into(),
            group: text(&spec["group"]),
            version: text(&version["name"]),
            kind: text(&names["kind"]),
            verbs: STATUS_VERBS,
            serves: Serves::Part,
        });
    }
    if version["subresources"]["scale"].is_object() {
        subresources.push(Subresource {
            name: "scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            verbs: STATUS_VERBS,
            serves: Serves::Scale,
        });
    }
    Resource {
        group: text(&spec["group"]),
        version: text(&version["name"]),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        plural: text(&names["plural"]),
        singular: text(&names["singular"]),
        short_names: texts(&names["shortNames"]),
        namespaced: spec["scope"] == "Namespaced",
        categories: texts(&names["categories"]),
        verbs: ALL_VERBS,
        subresources,
        has_generation: true,
        decode: None,
        storage: storage.to_owned().into(),
        hooks: Hooks::Custom(Arc::new(Custom::new(spec, version))),
    }
}

/// Registers the definitions of an earlier run.
pub(crate) fn load(inner: &Inner, store: &mut Store) -> ApiResult<()> {
    for stored in store.list(STORAGE, None, None, None)? {
        inner.registry.replace_custom(&stored.key.name, resources(stored.value()));
    }
    Ok(())
}

/// After a write of a definition.
pub(super) fn follow(inner: &Inner, store: &mut Store, change: &Change<'_>) -> ApiResult<()> {
    match (change.before, change.after) {
        _ if !change.of("apiextensions.k8s.io", "customresourcedefinitions") => {}
        (_, Some(definition)) => written(inner, store, change.resource, definition)?,
        (Some(definition), None) => removed(inner, store, definition),
        (None, None) => {}
    }
    Ok(())
}

/// After a definition was written: serves it, and says so in its status.
fn written(inner: &Inner, store: &mut Store, resource: &Arc<Resource>, stored: &Arc<Stored>) -> ApiResult<()> {
    let value = stored.value();
    let name = &stored.key.name;
    if meta::deleting(value) {
        inner.collector.add(Work::Definition(name.clone()));
    }
    let served = resources(value);
    let known = inner.registry.all();
    let same = |a: &Resource, b: &Resource| a.storage == b.storage && a.version == b.version;
    let before = known.iter().filter(|r| r.is_custom() && r.storage == name.as_str()).count();
    let unchanged = served.len() == before && served.iter().all(|a| known.iter().any(|b| same(a, b)));
    inner.registry.replace_custom(name, served);
    if !unchanged {
        store.disconnect(name);
    }
    let mut new = value.clone();
    establish(&mut new, Timestamp::now());
    if new["status"] != value["status"] {
        store.write(&resource.storage, new, Some(stored), None)?;
    }
    Ok(())
}

/// Sets the status of a definition that is served.
fn establish(definition: &mut Value, now: Timestamp) {
    let mut status = definition["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    status.set("acceptedNames", definition["spec"]["names"].clone());
    let mut stored: Vec<Value> = status["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        if version["storage"] == true && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    status.set("storedVersions", stored.into());
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, reason, message) in [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ] {
        if !conditions.iter().any(|c| c["type"] == kind && c["status"] == "True") {
            conditions.retain(|c| c["type"] != kind);
            conditions.push(json!({
                "type": kind, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": meta::rfc3339(now),
            }));
        }
    }
    status.set("conditions", conditions.into());
    definition.set("status", status);
}

/// After a definition went: nothing serves its objects any more.
fn removed(inner: &Inner, store: &mut Store, definition: &Stored) {
    inner.registry.replace_custom(&definition.key.name, Vec::new());
    store.disconnect(&definition.key.name);
}

/// Deletes the objects of a definition that is going, a slice at a time; takes its finalizer off after the last.
pub(crate) fn collect(inner: &Inner, store: &mut Store, name: &str) -> ApiResult<()> {
    let key = ObjectKey::cluster(name);
    let Some(stored) = store.get(STORAGE, &key)? else { return Ok(()) };
    let finalizers = meta::finalizers(stored.value());
    if !meta::deleting(stored.value()) || !finalizers.iter().any(|f| f == FINALIZER) {
        return Ok(());
    }
    if let Some(resource) = inner.registry.by_storage(name) {
        let mut room = SLICE;
        if !garbage_collector::remove_all(inner, store, &resource, None, &Options::default(), &mut room)? {
            inner.collector.add(Work::Definition(name.to_owned()));
            return Ok(());
        }
    }
    if !store.list(name, None, None, Some(1))?.is_empty() {
        return Ok(());
    }
    let Some(resource) = inner.registry.by_storage(STORAGE) else { return Ok(()) };
    let mut new = stored.value().clone();
    let kept: Vec<String> = finalizers.into_iter().filter(|f| f != FINALIZER).collect();
    meta::set_finalizers(&mut new, &kept);
    write::rewrite(inner, store, &resource, &stored, new)
}
