//! managedFields: kept for those who use server-side apply, protected from everyone else.

use edge_protocol::json::SetField;
use serde_json::Value;

use super::Context;
use crate::patch::fields;
use crate::patch::places::Places;
use apimachinery::meta;

/// Sets the managedFields of a write. What clients send as managedFields does not count.
pub(crate) fn stamp(ctx: &Context<'_>, new: &mut Value, old: Option<&Value>) {
    let entries = match (&ctx.managed, old) {
        (Some(entries), _) => entries.clone(),
        (None, Some(old)) => disown(&old["metadata"]["managedFields"], new, old),
        (None, None) => Value::Null,
    };
    meta::set(new, "managedFields", entries);
}

/// After a write that is no apply: an applier no longer owns what the write changed.
fn disown(entries: &Value, new: &Value, old: &Value) -> Value {
    let Some(entries) = entries.as_array() else { return Value::Null };
    let (is, was) = (Places::new(new), Places::new(old));
    let kept: Vec<Value> = entries
        .iter()
        .filter_map(|entry| {
            let mut set = fields::from_json(&entry["fieldsV1"]);
            let all = set.len();
            set.retain(|path| is.at(path) == was.at(path));
            if set.is_empty() {
                return None;
            }
            let mut entry = entry.clone();
            if set.len() != all {
                entry.set("fieldsV1", fields::to_json(&set));
            }
            Some(entry)
        })
        .collect();
    if kept.is_empty() { Value::Null } else { kept.into() }
}

/// Whether two lists of managedFields differ in more than their times.
pub(crate) fn same_owners(a: &Value, b: &Value) -> bool {
    let bare = |value: &Value| {
        let mut value = value.clone();
        for entry in value.as_array_mut().into_iter().flatten() {
            if let Some(map) = entry.as_object_mut() {
                map.remove("time");
            }
        }
        value
    };
    bare(a) == bare(b)
}
