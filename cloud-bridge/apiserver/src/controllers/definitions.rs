//! Custom resource definitions: what each of them serves, and their life from Established to the last object
//! (K8s apiextensions-apiserver pkg/controller/{establish,finalizer}).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use sampan_json::SetField;
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

/// The resources that a definition serves, one per version; none before its names are accepted, and when it has lost its
/// objects and waits for others.
pub(crate) fn resources(definition: &Value) -> Vec<Arc<Resource>> {
    if !is_true(definition, "Established") || (meta::deleting(definition) && !waits(definition)) {
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
    let accepted = &definition["status"]["acceptedNames"];
    let names = if accepted["kind"].is_string() { accepted } else { &spec["names"] };
    let storage = format!(
        "{}.{}",
        spec["names"]["plural"].as_str().unwrap_or_default(),
        spec["group"].as_str().unwrap_or_default()
    );
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

/// Serves the definitions of an earlier run, so that no client finds its kind missing after a restart.
pub(super) fn load(inner: &Inner, store: &Store) -> Result<(), StoreError> {
    for stored in store.list(STORAGE, None, None, None)? {
        inner.registry.replace_custom(&stored.key.name, resources(stored.value()));
    }
    Ok(())
}

/// Work items: a definition or its objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The served versions of a definition, and its deletion.
    Definition(String),
    /// Its objects after this one.
    Contents(String, Option<ObjectKey>),
    /// Whether it has any objects yet.
    Empty(String),
}

#[derive(Default)]
pub(super) struct Definitions {
    /// Definitions whose objects are being deleted: no check yet whether any are left.
    emptied: BTreeSet<String>,
    /// Those whose names others have.
    conflicting: BTreeSet<String>,
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
    fn definition(&mut self, turn: &mut Turn<'_, Key>, name: &str) -> ApiResult<()> {
        self.conflicting.remove(name);
        let Some(stored) = turn.store.get(STORAGE, &ObjectKey::cluster(name))? else {
            serve(turn.inner, turn.store, name, Vec::new());
            self.ask_others(turn);
            return Ok(());
        };
        let value = stored.value();
        let mut new = value.clone();
        let all = turn.inner.registry.all();
        let others: Vec<&Resource> = all.iter().map(Arc::as_ref).filter(|other| other.storage != name).collect();
        establish(&mut new, &others, Timestamp::now());
        serve(turn.inner, turn.store, name, resources(&new));
        if new["status"] != value["status"] {
            let renamed = new["status"]["acceptedNames"] != value["status"]["acceptedNames"];
            turn.store.write(STORAGE, new.clone(), Some(&stored), None)?;
            if renamed {
                self.ask_others(turn);
            }
        }
        if !is_true(&new, "NamesAccepted") {
            self.conflicting.insert(name.to_owned());
        }
        if going(&stored) && !self.emptied.contains(name) {
            turn.queue.add(Key::Contents(name.to_owned(), None));
        }
        Ok(())
    }

    /// Names may be free now that others wait for.
    fn ask_others(&self, turn: &Turn<'_, Key>) {
        self.conflicting.iter().for_each(|name| turn.queue.add(Key::Definition(name.clone())));
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

    /// Removes the finalizer of a definition that is being deleted, after its last object.
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
        // Stop serving before the definition is deleted: an object created in between would have no definition.
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

/// Whether a condition holds.
fn is_true(definition: &Value, kind: &str) -> bool {
    let mut conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == "True")
}

/// Sets the status of a definition, with regard to the other served resources.
fn establish(definition: &mut Value, others: &[&Resource], now: Timestamp) {
    let (names, conflict) = accepted(definition, others);
    let mut status = definition["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    status.set("acceptedNames", names);
    let mut stored: Vec<Value> = status["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in versions(definition) {
        if version["storage"] == true && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    status.set("storedVersions", stored.into());
    definition.set("status", status);
    match conflict {
        Some((reason, message)) => {
            condition(definition, ("NamesAccepted", "False", reason, &message), now);
            if !is_true(definition, "Established") {
                let why = "not all names are accepted";
                condition(definition, ("Established", "False", "NotAccepted", why), now);
            }
        }
        None => {
            condition(definition, ("NamesAccepted", "True", "NoConflicts", "no conflicts found"), now);
            if !is_true(definition, "Established") {
                let why = "the initial names have been accepted";
                condition(definition, ("Established", "True", "InitialNamesAccepted", why), now);
            }
        }
    }
}

/// Sets a condition, if it changed.
fn condition(definition: &mut Value, (kind, status, reason, message): (&str, &str, &str, &str), now: Timestamp) {
    let mut conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let said = |one: &Value| one["type"] == kind && one["status"] == status;
    if conditions.iter().any(|one| said(one) && (status == "True" || one["message"] == message)) {
        return;
    }
    let since = conditions.iter().find(|one| said(one)).map(|one| one["lastTransitionTime"].clone());
    let new = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| meta::rfc3339(now).into()),
    });
    match conditions.iter_mut().find(|one| one["type"] == kind) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    definition.set_at(&["status", "conditions"], conditions.into());
}

/// The names that a definition gets: the requested ones, except those of others in its group, and the reason and
/// message of the last conflict (K8s apiextensions-apiserver pkg/controller/status/naming_controller.go).
fn accepted(definition: &Value, others: &[&Resource]) -> (Value, Option<(&'static str, String)>) {
    let (spec, had) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let group = spec["group"].as_str().unwrap_or_default();
    let others: Vec<_> = others.iter().filter(|other| other.group == group).collect();
    let kinds = |name: &str| others.iter().any(|other| other.kind == name || other.list_kind == name);
    let resources = |name: &str| {
        let short = |other: &Resource| other.short_names.iter().any(|short| *short == name);
        others.iter().any(|other| other.plural == name || other.singular == name || short(other))
    };
    let mut names = spec["names"].clone();
    let mut conflict = None;
    let mut keep = |names: &mut Value, field: &str, reason: &'static str, taken: &str| {
        conflict = Some((reason, format!("{taken:?} is already in use")));
        names.set(field, had[field].clone());
    };
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        let asked = spec["names"][field].as_str().unwrap_or_default();
        if had[field] != asked && resources(asked) {
            keep(&mut names, field, reason, asked);
        }
    }
    let old: Vec<&str> = had["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let short = spec["names"]["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(asked) = short.into_iter().find(|asked| !old.contains(asked) && resources(asked)) {
        keep(&mut names, "shortNames", "ShortNamesConflict", asked);
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        let asked = spec["names"][field].as_str().unwrap_or_default();
        if had[field] != asked && kinds(asked) {
            keep(&mut names, field, reason, asked);
        }
    }
    if let Some(map) = names.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    (names, conflict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.x.io")},
            "spec": {"group": "x.io", "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
                    "shortNames": short},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        })
    }

    fn established(mut definition: Value, others: &[&Resource]) -> Value {
        establish(&mut definition, others, Timestamp::UNIX_EPOCH);
        definition
    }

    #[test]
    fn names_that_others_have_are_not_accepted() {
        let first = resources(&established(definition("as", "A", &["a"]), &[]));
        let others: Vec<&Resource> = first.iter().map(Arc::as_ref).collect();
        assert_eq!(others.len(), 1);
        for (conflicting, reason) in [
            (definition("bs", "A", &[]), "ListKindConflict"),
            (definition("bs", "B", &["a"]), "ShortNamesConflict"),
            (definition("a", "B", &[]), "PluralConflict"),
        ] {
            let told = established(conflicting, &others);
            assert_eq!(told["status"]["conditions"][0]["reason"], reason, "{told}");
            assert_eq!(told["status"]["conditions"][0]["status"], "False");
            assert_eq!(told["status"]["conditions"][1]["reason"], "NotAccepted");
            assert!(resources(&told).is_empty(), "it is not served");
            let later = established(told, &[]);
            assert!(is_true(&later, "NamesAccepted") && resources(&later).len() == 1, "once they are free it is");
        }
        let fine = established(definition("bs", "B", &["b"]), &others);
        assert_eq!(fine["status"]["acceptedNames"], fine["spec"]["names"]);
        let mut other_group = definition("bs", "A", &["a"]);
        other_group["spec"]["group"] = "y.io".into();
        assert!(is_true(&established(other_group, &others), "Established"));
    }

    #[test]
    fn an_established_definition_keeps_its_names_in_a_conflict() {
        let first = resources(&established(definition("as", "A", &["a"]), &[]));
        let others: Vec<&Resource> = first.iter().map(Arc::as_ref).collect();
        let mut own = established(definition("bs", "B", &["b"]), &others);
        own["spec"]["names"]["shortNames"] = json!(["b", "a"]);
        let told = established(own, &others);
        assert_eq!(told["status"]["acceptedNames"]["shortNames"], json!(["b"]));
        assert!(is_true(&told, "Established") && !is_true(&told, "NamesAccepted"));
        assert_eq!(resources(&told)[0].short_names.len(), 1);
    }
}
