//! Strategic merge patch: objects merge, null deletes, lists merge by key where the kind says so, and the
//! directives `$patch`, `$retainKeys`, `$setElementOrder/LIST` and `$deleteFromPrimitiveList/LIST` steer it.
//! Follows apimachinery's util/strategicpatch. Pure.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::merge_keys::{List, Type};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// A strategic merge patch that could not be applied; becomes 400 or 422 with this text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PatchError {
    /// The kind has no merge keys (custom resources): 415.
    #[error("strategic merge patch is not supported")]
    Unsupported,
    /// The patch itself is malformed: 400.
    #[error("{0}")]
    Invalid(String),
}

/// Applies `patch` to `current`, with the merge keys of its kind. Consumes both: copies of long lists would take more
/// memory than the object.
pub(crate) fn apply(keys: &Type, current: Value, patch: Value) -> Result<Value, PatchError> {
    let (Value::Object(current), Value::Object(patch)) = (current, patch) else {
        return Err(invalid("invalid JSON document"));
    };
    merge_object(current, patch, keys).map(Value::Object)
}

fn invalid(text: &str) -> PatchError {
    PatchError::Invalid(text.to_owned())
}

fn merge_object(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    of: &Type,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(&directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    ordered_lists(&mut original, &mut patch, of)?;
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            let Value::Array(gone) = value else {
                return Err(invalid("invalid patch format of primitive list"));
            };
            if let Some(Value::Array(items)) = original.get_mut(list) {
                let gone = Key(None).places(&gone);
                items.retain(|item| !gone.contains_key(&Key(None).name(item)));
            }
            continue;
        }
        merge_field(&mut original, key, value, of)?;
    }
    Ok(original)
}

fn merge_field(original: &mut Map<String, Value>, key: String, value: Value, of: &Type) -> Result<(), PatchError> {
    let (field, list) = of.field(&key);
    let merged = match (original.remove(&key), value) {
        (_, Value::Null) => return Ok(()),
        (_, new) if list == List::Whole => new,
        (Some(Value::Object(old)), Value::Object(new)) => Value::Object(merge_object(old, new, field)?),
        (Some(Value::Array(old)), Value::Array(new)) => Value::Array(merge_list(old, new, field, list)?),
        (_, new) => match without_directives(new) {
            Some(new) => new,
            None => return Ok(()),
        },
    };
    original.insert(key, merged);
    Ok(())
}

/// `$retainKeys`: removes fields that the list does not name (members of a union, such as a volume's source).
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || invalid("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(bad)?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let kept = |key: &String| keys.contains(key.as_str());
    if patch.iter().any(|(key, value)| !value.is_null() && !key.starts_with('$') && !kept(key)) {
        return Err(bad());
    }
    original.retain(|key, _| kept(key));
    Ok(())
}

/// `$setElementOrder/LIST`: merges the list and puts it in that order; elements that only the server knows keep
/// their place as well as they can.
fn ordered_lists(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    of: &Type,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for directive in directives {
        let bad = || invalid("invalid patch format of setElementOrder list");
        let Some(Value::Array(order)) = patch.remove(&directive) else { return Err(bad()) };
        let name = directive.trim_start_matches(ORDER);
        let (field, list) = of.field(name);
        let patched = match patch.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::Array(items)) => Some(items),
            Some(_) => return Err(bad()),
        };
        let by = Key::of(list);
        let listed = by.places(&order);
        if let Some(items) = &patched
            && !items.iter().filter(|i| !is_directive(i)).all(|i| listed.contains_key(&by.name(i)))
        {
            let names: Vec<Value> = items.iter().map(|item| by.value(item).clone()).collect();
            let listed: Vec<Value> = order.iter().map(|item| by.value(item).clone()).collect();
            return Err(PatchError::Invalid(format!(
                "The order in patch list:\n{}\n doesn't match {directive} list:\n{}\n",
                Value::Array(names),
                Value::Array(listed)
            )));
        }
        drop(order);
        // The server's order is that of the list before this patch.
        let (known, merged) = match (original.remove(name), patched) {
            (Some(Value::Array(old)), Some(new)) => (by.places(&old), merge_list(old, new, field, list)?),
            (Some(Value::Array(old)), None) => (by.places(&old), old),
            (_, Some(new)) => (Places::new(), new.into_iter().filter_map(without_directives).collect()),
            (_, None) => continue,
        };
        original.insert(name.to_owned(), Value::Array(arrange(merged, &listed, &known, by)));
    }
    Ok(())
}

fn merge_list(old: Vec<Value>, new: Vec<Value>, of: &Type, list: List) -> Result<Vec<Value>, PatchError> {
    match list {
        List::Replace | List::Whole | List::One | List::By { merge: None, .. } => {
            Ok(new.into_iter().filter_map(without_directives).collect())
        }
        List::Set => {
            let by = Key(None);
            let (known, ordered) = (by.places(&old), by.places(&new));
            let is_new = |(at, item): &(usize, Value)| {
                let name = by.name(item);
                !known.contains_key(&name) && ordered.get(&name) == Some(at)
            };
            let mut merged = old;
            merged.extend(new.into_iter().enumerate().filter(is_new).map(|(_, item)| item));
            Ok(arrange(merged, &ordered, &known, by))
        }
        List::By { merge: Some(key), .. } => merge_by_key(old, new, of, key),
    }
}

fn merge_by_key(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    of: &Type,
    key: &'static str,
) -> Result<Vec<Value>, PatchError> {
    let by = Key(Some(key));
    let mut replace = false;
    let mut items = Vec::new();
    let mut gone = HashSet::new();
    for item in patch {
        let Value::Object(item) = item else { return Err(invalid("expected a map in a list that merges by key")) };
        match item.get(PATCH).map(|d| d.as_str()) {
            None => items.push(item),
            Some(Some("replace")) => replace = true,
            Some(Some("delete")) => {
                gone.insert(item.get(key).ok_or_else(|| no_merge_key(&item, key))?.to_string());
            }
            Some(_) => return Err(unknown_directive(&item[PATCH], &item)),
        }
    }
    if replace {
        return Ok(items.into_iter().map(Value::Object).collect());
    }
    if !gone.is_empty() {
        original.retain(|old| !gone.contains(&by.name(old)));
    }
    let known = by.places(&original);
    let (mut added, mut ordered) = (Places::new(), Places::with_capacity(items.len()));
    for (at, item) in items.into_iter().enumerate() {
        let Some(name) = item.get(key).map(Value::to_string) else { return Err(no_merge_key(&item, key)) };
        let place = added.get(&name).or_else(|| known.get(&name)).copied();
        ordered.entry(name.clone()).or_insert(at);
        match place.and_then(|place| original.get_mut(place)) {
            Some(Value::Object(old)) => *old = merge_object(std::mem::take(old), item, of)?,
            _ => {
                added.insert(name, original.len());
                original.extend(without_directives(Value::Object(item)));
            }
        }
    }
    Ok(arrange(original, &ordered, &known, by))
}

/// Elements with a place in `ordered` in that order, the others in the server's order in `known`, interleaved: an
/// element of the server comes before the next ordered one if it came before it on the server.
fn arrange(merged: Vec<Value>, ordered: &Places, known: &Places, by: Key) -> Vec<Value> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let name = by.name(&item);
        let place = known.get(&name).copied();
        match ordered.get(&name) {
            Some(at) => named.push((*at, place, item)),
            None => others.push((place, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(place, _)| *place);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, item) in named {
        let before = |other: &(Option<usize>, Value)| matches!((other.0, place), (Some(a), Some(b)) if a < b);
        while let Some((_, other)) = others.next_if(before) {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others.map(|(_, item)| item));
    out
}

/// Where the elements of a list are, by the text of their key.
type Places = HashMap<String, usize>;

/// Identity of a list's elements: a field, or their value.
#[derive(Clone, Copy)]
struct Key(Option<&'static str>);

impl Key {
    fn of(list: List) -> Self {
        Self(list.merge_key())
    }

    fn value(self, item: &Value) -> &Value {
        self.0.map_or(item, |key| &item[key])
    }

    /// The key as text, equal for equal elements.
    fn name(self, item: &Value) -> String {
        self.value(item).to_string()
    }

    /// Where each element is first in a list: lists of strangers are long, so nothing searches them.
    fn places(self, list: &[Value]) -> Places {
        let mut places = Places::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            places.entry(self.name(item)).or_insert(at);
        }
        places
    }
}

fn is_directive(item: &Value) -> bool {
    item.get(PATCH).is_some()
}

/// The value without directives and nulls; `None` when it is a directive itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(Value::Object(
            map.into_iter()
                .filter(|(key, value)| !key.starts_with('$') && !value.is_null())
                .filter_map(|(key, value)| Some((key, without_directives(value)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn no_merge_key(item: &Map<String, Value>, key: &str) -> PatchError {
    PatchError::Invalid(format!("map: {} does not contain declared merge key: {key}", Value::Object(item.clone())))
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    let shown = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    PatchError::Invalid(format!("unknown patch type: {shown} in map: {}", Value::Object(patch.clone())))
}
