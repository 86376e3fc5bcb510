//! Custom resource definitions: what each of them serves, and their life from Established to the last object
//! (K8s apiextensions-apiserver pkg/controller/{establish,finalizer}).

use std::collections::BTreeSet;
use std::sync::Arc;

use edge_protocol::json::SetField;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::contents;
use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use crate::kinds::custom::strategy::Custom;
use crate::kinds::custom::{FINALIZER, STORAGE};
use crate::registry::write;
use crate::resource::status::ApiResult;
use crate::resource::{ALL_VERBS, Hooks, Resource, Subresource, Text};
use crate::state::Inner;
use crate::storage::{Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

fn text(value: &Value) -> Text {
    Text::from(value.as_str().unwrap_or_default().to_owned())
}

fn texts(value: &Value) -> Vec<Text> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// The resources that a definition serves, one per version; none when it has lost its objects and waits for others.
pub(crate) fn resources(definition: &Value) -> Vec<Arc<Resource>> {
    if meta::deleting(definition) && !waits(definition) {
        return Vec::new();
    }
    versions(definition)
        .filter(|version| version["served"] == true)
        .map(|v| Arc::new(resource(definition, v)))
        .collect()
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

/// The resource by which objects of a storage can be deleted, though no version of them may be served.
pub(super) fn deletable(inner: &Inner, store: &Store, storage: &str) -> Result<Option<Arc<Resource>>, StoreError> {
    if let Some(resource) = inner.registry.by_storage(storage) {
        return Ok(Some(resource));
    }
    let Some(definition) = store.get(STORAGE, &ObjectKey::cluster(storage))? else { return Ok(None) };
    let stored = versions(definition.value()).find(|version| version["storage"] == true);
    Ok(stored.map(|version| Arc::new(resource(definition.value(), version))))
}

fn resource(definition: &Value, version: &Value) -> Resource {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let storage =
        format!("{}.{}", names["plural"].as_str().unwrap_or_default(), spec["group"].as_str().unwrap_or_default());
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        let kind = text(&names["kind"]);
        subresources.push(Subresource::status(text(&spec["group"]), text(&version["name"]), kind));
    }
    if version["subresources"]["scale"].is_object() {
        subresources.push(Subresource::scale());
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
        storage: storage.into(),
        hooks: Hooks::Custom(Arc::new(Custom::new(spec, version, meta::deleting(definition)))),
    }
}

/// Serves the definitions of an earlier run: no client is told after a restart that its kind is not there.
pub(super) fn load(inner: &Inner, store: &Store) -> Result<(), StoreError> {
    for stored in store.list(STORAGE, None, None, None)? {
        inner.registry.replace_custom(&stored.key.name, resources(stored.value()));
    }
    Ok(())
}

/// What of a definition, or of its objects, is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// What it serves, and whether it goes.
    Definition(String),
    /// Its objects after this one.
    Contents(String, Option<ObjectKey>),
    /// Whether it has any objects yet.
    Empty(String),
}

#[derive(Default)]
pub(super) struct Definitions {
    /// Those whose objects are being deleted: whether there are any is no question yet.
    emptied: BTreeSet<String>,
}

impl Controller for Definitions {
    type Key = Key;

    const NAME: &'static str = "serving definitions";

    fn storages(_: &Inner) -> Vec<String> {
        vec![STORAGE.into()]
    }

    fn keys(inner: &Inner, seen: &Seen<'_>, queue: &Queue<Key>) {
        if seen.storage == STORAGE {
            queue.add(Key::Definition(seen.key.name.clone()));
        } else if seen.after.is_none() && inner.registry.by_storage(seen.storage).is_none_or(|r| r.is_custom()) {
            queue.add(Key::Empty(seen.storage.to_owned()));
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, Key>, key: &Key) -> ApiResult<()> {
        match key {
            Key::Definition(name) => self.definition(turn, name),
            Key::Contents(name, after) => self.contents(turn, name, after.clone()),
            Key::Empty(name) => self.empty(turn, name),
        }
    }
}

impl Definitions {
    fn definition(&self, turn: &mut Turn<'_, Key>, name: &str) -> ApiResult<()> {
        let Some(stored) = turn.store.get(STORAGE, &ObjectKey::cluster(name))? else {
            serve(turn.inner, turn.store, name, Vec::new());
            return Ok(());
        };
        let value = stored.value();
        serve(turn.inner, turn.store, name, resources(value));
        let mut new = value.clone();
        establish(&mut new, Timestamp::now());
        if new["status"] != value["status"] {
            turn.store.write(STORAGE, new, Some(&stored), None)?;
        }
        if going(&stored) && !self.emptied.contains(name) {
            turn.queue.add(Key::Contents(name.to_owned(), None));
        }
        Ok(())
    }

    fn contents(&mut self, turn: &mut Turn<'_, Key>, name: &str, after: Option<ObjectKey>) -> ApiResult<()> {
        self.emptied.remove(name);
        if turn.store.get(STORAGE, &ObjectKey::cluster(name))?.is_none_or(|definition| !going(&definition)) {
            return Ok(());
        }
        if let Some(resource) = deletable(turn.inner, turn.store, name)? {
            self.emptied.insert(name.to_owned());
            if let Some(last) = contents::delete(turn, &resource, None, after)? {
                turn.queue.add(Key::Contents(name.to_owned(), Some(last)));
                return Ok(());
            }
            self.emptied.remove(name);
        }
        turn.queue.add(Key::Empty(name.to_owned()));
        Ok(())
    }

    /// Takes the finalizer off a definition that is going, after its last object.
    fn empty(&self, turn: &mut Turn<'_, Key>, name: &str) -> ApiResult<()> {
        let definition = turn.store.get(STORAGE, &ObjectKey::cluster(name))?.filter(|found| going(found));
        let Some(definition) = definition.filter(|_| !self.emptied.contains(name)) else { return Ok(()) };
        if let Some(first) = turn.store.list(name, None, None, Some(1))?.pop() {
            if !meta::deleting(first.value()) {
                turn.queue.add(Key::Contents(name.to_owned(), None));
            }
            return Ok(());
        }
        let Some(resource) = turn.inner.registry.by_storage(STORAGE) else { return Ok(()) };
        // Before it goes: an object that was made in between would be nobody's.
        serve(turn.inner, turn.store, name, Vec::new());
        let mut new = definition.value().clone();
        let kept: Vec<String> = meta::finalizers(&new).into_iter().filter(|f| f != FINALIZER).collect();
        meta::set_finalizers(&mut new, &kept);
        Ok(write::rewrite(turn.store, &resource, &definition, new)?)
    }
}

/// Whether it is being deleted and waits for its objects.
fn going(definition: &Stored) -> bool {
    meta::deleting(definition.value()) && waits(definition.value())
}

fn waits(definition: &Value) -> bool {
    meta::finalizers(definition).iter().any(|finalizer| finalizer == FINALIZER)
}

/// From now on a definition serves these resources. Ends its watches when they are other ones than before.
fn serve(inner: &Inner, store: &mut Store, name: &str, served: Vec<Arc<Resource>>) {
    let versions = |all: &[Arc<Resource>]| -> BTreeSet<String> {
        let own = all.iter().filter(|resource| resource.is_custom() && resource.storage == name);
        own.map(|resource| resource.version.to_string()).collect()
    };
    let changed = versions(&served) != versions(&inner.registry.all());
    inner.registry.replace_custom(name, served);
    if changed {
        store.disconnect(name);
    }
}

/// Sets the status of a definition that is served.
fn establish(definition: &mut Value, now: Timestamp) {
    let mut status = definition["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    status.set("acceptedNames", definition["spec"]["names"].clone());
    let mut stored: Vec<Value> = status["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in versions(definition) {
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
