//! Owners of the fields of an object: every writer owns the fields it sets, so that appliers also get conflicts with
//! updates. The rules are those of apimachinery pkg/util/managedfields/internal.

pub(crate) mod entries;
pub(crate) mod writer;

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::context::Context;
use crate::patch::budget::{Budget, TooManyFields};
use crate::patch::changes::Changes;
use crate::patch::field_set::FieldSet;
use apimachinery::json::text;
use apimachinery::meta;
use entries::{Entries, Operation};

/// Metadata without an owner: fields of the server, or fields that identify the object (stripmeta.go).
static STRIPPED: LazyLock<FieldSet> = LazyLock::new(|| {
    let names =
        ["creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "selfLink", "uid"];
    let mut fields: Map<String, Value> = names.iter().map(|name| (format!("f:{name}"), json!({}))).collect();
    fields.insert(".".to_owned(), json!({}));
    let set = json!({"f:apiVersion": {}, "f:kind": {}, "f:metadata": fields});
    FieldSet::decode(&set, &mut Budget::default()).ok().flatten().unwrap_or_default()
});

/// The managedFields of a new object, by its state before admission: fields that the server adds have no owner. `sent`
/// are the client's own entries.
pub(crate) fn created(ctx: &Context<'_>, new: &Value, sent: Value) -> Value {
    let resource = &ctx.resource;
    let Ok(entries) = Entries::read(&sent, ctx.field_budget()) else { return Value::Null };
    // Leases and Events are written all the time, by one writer each: entries would be the largest part of them.
    if sent.is_null() && (resource.rules().ttl.is_some() || resource.kind == "Lease") {
        return Value::Null;
    }
    // As values they take several times the memory of the sets.
    drop(sent);
    let structures = resource.rules().structures.iter().chain(&["metadata"]);
    let empty: Map<String, Value> = structures.map(|name| ((*name).to_owned(), json!({}))).collect();
    updated_by(ctx, entries.unwrap_or_default(), new, &Value::Object(empty)).unwrap_or_default()
}

/// Returns the managedFields after an update from `old` to `new`. `sent` are the client's own entries: they replace the
/// old ones if they are readable, except in a subresource; one empty entry removes all.
///
/// An object with too many fields loses its managedFields, as in Kubernetes when they cannot be computed
/// (fieldmanager.go, `UpdateNoErrors`).
pub(crate) fn updated(ctx: &Context<'_>, sent: &Value, new: &Value, old: &Value) -> Value {
    let live = &old["metadata"]["managedFields"];
    let main = ctx.path.subresource.is_empty();
    if main && is_reset(sent) {
        return Value::Null;
    }
    let given = if main && sent != live { Entries::read(sent, ctx.field_budget()).ok().flatten() } else { None };
    let given = given.filter(|entries| !entries.0.is_empty());
    let entries = given.map_or_else(|| Entries::read(live, ctx.field_budget()), |given| Ok(Some(given)));
    match entries {
        // An untracked object is tracked from its first apply on (skipnonapplied.go).
        Ok(Some(entries)) if !entries.0.is_empty() => updated_by(ctx, entries, new, old).unwrap_or_default(),
        _ => Value::Null,
    }
}

/// `[{}]` (managedfields.go, `isResetManagedFields`).
fn is_reset(sent: &Value) -> bool {
    matches!(sent.as_array().map(Vec::as_slice), Some([one]) if one.as_object().is_some_and(Map::is_empty))
}

fn updated_by(ctx: &Context<'_>, mut entries: Entries, new: &Value, old: &Value) -> Result<Value, TooManyFields> {
    let shape = ctx.resource.strategy().shape();
    let changes = Changes::between(old, new, shape, &mut ctx.change_budget())?;
    let written = changes.written();
    entries.disown(&written);
    entries.disown(&changes.removed);
    drop(changes);
    let own = ownable(ctx, written);
    if !own.is_empty() {
        entries.add(ctx.writer.owner(Operation::Update, &ctx.resource), own, &meta::rfc3339(ctx.now));
    }
    entries.cap();
    entries.within(ctx.field_budget())?;
    Ok(entries.write())
}

/// The part of a set that a writer may own: without the server's metadata and without fields that the request cannot
/// write (`GetResetFields` of the kinds' strategies).
pub(crate) fn ownable(ctx: &Context<'_>, set: FieldSet) -> FieldSet {
    let mut set = set.difference(&STRIPPED);
    match ctx.path.subresource.as_str() {
        "" if ctx.resource.has_subresource("status") => set.drop_field("status"),
        "status" => {
            set.drop_field("spec");
            if ctx.resource.is_custom() {
                set.drop_field("metadata");
            }
        }
        _ => {}
    }
    set
}

/// Whether two lists of managedFields differ only in their times, and in the order, which depends on the times.
pub(crate) fn same_owners(a: &Value, b: &Value) -> bool {
    let (Some(one), Some(other)) = (a.as_array(), b.as_array()) else { return a == b };
    let same = |(one, other): (&Value, &Value)| match (one.as_object(), other.as_object()) {
        (Some(one), Some(other)) => timeless(one).eq(timeless(other)),
        _ => one == other,
    };
    one.len() == other.len() && by_owner(one).into_iter().zip(by_owner(other)).all(same)
}

/// Entries in the order of their owners.
fn by_owner(entries: &[Value]) -> Vec<&Value> {
    fn owner(entry: &Value) -> [&str; 4] {
        ["operation", "manager", "subresource", "apiVersion"].map(|field| text(entry, field))
    }
    let mut entries: Vec<&Value> = entries.iter().collect();
    entries.sort_by(|one, other| owner(one).cmp(&owner(other)));
    entries
}

fn timeless(entry: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    entry.iter().filter(|(name, _)| *name != "time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_make_no_other_owners() {
        let entry = |time: &str, field: &str| json!([{"manager": "m", "time": time, "fieldsV1": { field: {} }}]);
        assert!(same_owners(&entry("1", "f:a"), &entry("2", "f:a")));
        assert!(same_owners(&entry("1", "f:a"), &json!([{"manager": "m", "fieldsV1": {"f:a": {}}}])));
        assert!(same_owners(&json!(null), &json!(null)));
        for (one, other) in [
            (entry("1", "f:a"), entry("1", "f:b")),
            (entry("1", "f:a"), json!([])),
            (entry("1", "f:a"), json!(null)),
            (json!([1]), json!([2])),
        ] {
            assert!(!same_owners(&one, &other), "{one} {other}");
        }
    }

    #[test]
    fn appliers_in_turn_make_no_other_owners() {
        let entry = |manager: &str, time: &str| json!({"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:a": {}}});
        let before = json!([entry("a", "1"), entry("b", "2")]);
        assert!(same_owners(&before, &json!([entry("b", "2"), entry("a", "3")])), "the last one stands last");
        assert!(!same_owners(&before, &json!([entry("b", "2"), entry("c", "3")])));
    }

    #[test]
    fn one_empty_entry_resets() {
        assert!(is_reset(&json!([{}])));
        for other in [json!([]), json!(null), json!([{}, {}]), json!([{"manager": "m"}])] {
            assert!(!is_reset(&other), "{other}");
        }
    }
}
