//! What differs between two states of an object, as field sets (structured-merge-diff typed/compare.go). Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::budget::{Budget, TooManyFields};
use super::field_set::FieldSet;
use super::shape::Shape;

/// The paths that are new, have another value, or were removed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Changes {
    /// Compares two states.
    ///
    /// # Errors
    /// More changes than the budget allows.
    pub(crate) fn between(
        old: &Value,
        new: &Value,
        shape: Shape<'_>,
        budget: &mut Budget,
    ) -> Result<Self, TooManyFields> {
        compare(Some(old), Some(new), shape, budget)
    }

    /// Paths whose new value the writer chose.
    pub(crate) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }

    fn attach(&mut self, step: impl Fn() -> String, below: Self, budget: &mut Budget) -> Result<(), TooManyFields> {
        self.added.attach(&step, below.added, budget)?;
        self.modified.attach(&step, below.modified, budget)?;
        self.removed.attach(&step, below.removed, budget)
    }

    fn settle(&mut self) {
        self.added.settle();
        self.modified.settle();
        self.removed.settle();
    }
}

fn compare(
    old: Option<&Value>,
    new: Option<&Value>,
    shape: Shape<'_>,
    budget: &mut Budget,
) -> Result<Changes, TooManyFields> {
    if let (Some(was), Some(is)) = (old, new)
        && (was.is_object(), was.is_array()) != (is.is_object(), is.is_array())
    {
        let (gone, come) = (compare(old, None, shape, budget)?, compare(None, new, shape, budget)?);
        return Ok(Changes { added: come.added, removed: gone.removed, ..Changes::default() });
    }
    let mut changes = Changes::default();
    match old.or(new) {
        Some(Value::Object(_)) if !shape.is_atomic() && !both(old, new, is_empty) => {
            let none = Map::new();
            let was = old.and_then(Value::as_object).unwrap_or(&none);
            let is = new.and_then(Value::as_object).unwrap_or(&none);
            for name in was.keys().chain(is.keys().filter(|name| !was.contains_key(*name))) {
                let below = compare(was.get(name), is.get(name), shape.field(name), budget)?;
                changes.attach(|| format!("f:{name}"), below, budget)?;
            }
        }
        Some(Value::Array(_)) if !both(old, new, is_empty) => match shape.list_keys() {
            Some(keys) => {
                let (was, is) = (items(old, shape, &keys), items(new, shape, &keys));
                for step in was.keys().chain(is.keys().filter(|step| !was.contains_key(*step))) {
                    let below = compare(was.get(step).copied(), is.get(step).copied(), shape.item(), budget)?;
                    changes.attach(|| step.clone(), below, budget)?;
                }
            }
            None => return Ok(leaf(old, new)),
        },
        _ => return Ok(leaf(old, new)),
    }
    changes.settle();
    changes.added.member = old.is_none();
    changes.removed.member = new.is_none();
    Ok(changes)
}

/// A value that is compared as a whole.
fn leaf(old: Option<&Value>, new: Option<&Value>) -> Changes {
    let mut changes = Changes::default();
    match (old, new) {
        (None, _) => changes.added.member = true,
        (_, None) => changes.removed.member = true,
        (old, new) => changes.modified.member = old != new,
    }
    changes
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn both(old: Option<&Value>, new: Option<&Value>, holds: fn(&Value) -> bool) -> bool {
    old.is_none_or(holds) && new.is_none_or(holds)
}

/// The items of a list by their step; of several with the same, the first.
fn items<'v>(list: Option<&'v Value>, shape: Shape<'_>, keys: &[&str]) -> BTreeMap<String, &'v Value> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.rev().map(|item| (shape.element(item, keys), item)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::patch::merge_keys::{META, Type, by, object};

    static SPEC: Type = Type { fields: &[by("containers", &["name"])] };
    static KIND: Type = Type { fields: &[META, object("spec", &SPEC)] };

    fn between(old: Value, new: Value) -> (Value, Value, Value) {
        let changes = Changes::between(&old, &new, Shape::built(&KIND), &mut Budget::default()).unwrap();
        (changes.added.encode(), changes.modified.encode(), changes.removed.encode())
    }

    #[test]
    fn every_level_that_is_new_is_added() {
        let (added, modified, removed) = between(
            json!({"metadata": {}, "spec": {"replicas": 1, "old": {"x": 1}, "selector": {"a": "b"}, "args": [1]}}),
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 2, "selector": {"a": "c"}, "args": [2],
                "containers": [{"name": "c", "image": "i"}]}}),
        );
        let item = json!({".": {}, "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}}});
        let labels = json!({".": {}, "f:a": {}});
        assert_eq!(added, json!({"f:metadata": {"f:labels": labels}, "f:spec": {"f:containers": item}}));
        assert_eq!(modified, json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:args": {}}}));
        assert_eq!(removed, json!({"f:spec": {"f:old": {".": {}, "f:x": {}}}}));
    }

    #[test]
    fn tenants_may_replace_all_fields_of_an_object() {
        let wide = |prefix: char, count: usize| -> Value {
            (0..count).map(|at| (format!("{prefix}{at}"), json!({"x": 1}))).collect::<Map<_, _>>().into()
        };
        let fits = |count| {
            let (old, new, shape) = (wide('a', count), wide('b', count), Shape::built(&KIND));
            let set = FieldSet::of(&old, shape, &mut Budget::of_tenant()).is_ok();
            (set, Changes::between(&old, &new, shape, &mut Budget::of_tenant_change()).is_ok())
        };
        assert_eq!((fits(3_800), fits(8_000)), ((true, true), (false, false)));
    }

    #[test]
    fn order_of_named_items_is_no_change() {
        let list = |names: [&str; 2]| json!({"spec": {"containers": names.map(|name| json!({ "name": name }))}});
        assert_eq!(between(list(["a", "b"]), list(["b", "a"])), (json!({}), json!({}), json!({})));
    }

    #[test]
    fn a_value_of_another_kind_replaces_what_was_there() {
        let (added, modified, removed) = between(json!({"a": {"x": 1}}), json!({"a": 1}));
        assert_eq!((added, modified), (json!({"f:a": {}}), json!({})));
        assert_eq!(removed, json!({"f:a": {".": {}, "f:x": {}}}));
    }
}
