//! Field sets: which fields of an object a manager owns, as a tree of the steps that lead to them. Operations and
//! encoding are those of structured-merge-diff (fieldpath/set.go, typed/tofieldset.go). Pure.

use std::cmp::Ordering;

use ecow::{EcoString, EcoVec};
use serde_json::{Map, Value, json};

use super::budget::{Budget, TooManyFields};
use super::shape::Shape;

/// One node of the tree. The root is the object. Sets with the same subtree share it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// The path that ends here is in the set.
    pub(super) member: bool,
    /// By their step, in order: `f:name`, `k:{"name":"x"}`, `v:"x"` or `i:0`.
    children: EcoVec<(EcoString, Self)>,
}

impl FieldSet {
    /// The fields that an applied object sets.
    ///
    /// # Errors
    /// More than the budget allows.
    pub(crate) fn of(value: &Value, shape: Shape<'_>, budget: &mut Budget) -> Result<Self, TooManyFields> {
        let mut set = Self::default();
        match value {
            Value::Object(map) if !shape.is_atomic() => {
                for (name, inner) in map {
                    let mut child = Self::of(inner, shape.field(name), budget)?;
                    child.member |= is_bare(inner) || shape.is_map_key(name);
                    set.attach(|| format!("f:{name}"), child, budget)?;
                }
            }
            Value::Array(items) => match shape.list_keys() {
                Some(keys) => {
                    for item in items {
                        let mut child = Self::of(item, shape.item(), budget)?;
                        child.member = true;
                        set.attach(|| shape.element(item, &keys), child, budget)?;
                    }
                }
                None => set.member = true,
            },
            _ => set.member = true,
        }
        set.settle();
        Ok(set)
    }

    /// Puts a child in its place when the list is complete: see `settle`. An empty one is left out.
    pub(super) fn attach(
        &mut self,
        step: impl FnOnce() -> String,
        child: Self,
        budget: &mut Budget,
    ) -> Result<(), TooManyFields> {
        if child.is_empty() {
            return Ok(());
        }
        let step = step();
        budget.charge(&step, !child.is_leaf())?;
        self.children.push((step.into(), child));
        Ok(())
    }

    /// Orders the children. The first of several with the same step counts.
    pub(super) fn settle(&mut self) {
        if self.children.is_sorted_by(|(one, _), (other, _)| one < other) {
            return;
        }
        let mut children = self.children.to_vec();
        children.sort_by(|(one, _), (other, _)| one.cmp(other));
        children.dedup_by(|(one, _), (other, _)| one == other);
        self.children = children.into_iter().collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// The set below one step.
    pub(super) fn child(&self, step: &str) -> Option<&Self> {
        let at = self.children.binary_search_by(|(known, _)| known.as_str().cmp(step)).ok()?;
        self.children.get(at).map(|(_, child)| child)
    }

    /// Paths that are in either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let member = self.member || other.member;
        if other.is_leaf() || self.shares(other) {
            return self.below(member);
        }
        if self.is_leaf() {
            return other.below(member);
        }
        self.join(other, member, |one, other| match (one, other) {
            (Some(one), Some(other)) => one.union(other),
            (one, other) => one.or(other).cloned().unwrap_or_default(),
        })
    }

    /// Paths that are in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let member = self.member && other.member;
        if self.is_leaf() || other.is_leaf() {
            return Self { member, ..Self::default() };
        }
        if self.shares(other) {
            return self.below(member);
        }
        self.join(other, member, |one, other| match (one, other) {
            (Some(one), Some(other)) => one.intersection(other),
            _ => Self::default(),
        })
    }

    /// Paths that are only in this set.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let member = self.member && !other.member;
        if self.is_leaf() || other.is_leaf() {
            return self.below(member);
        }
        if self.shares(other) {
            return Self { member, ..Self::default() };
        }
        self.join(other, member, |one, other| match (one, other) {
            (Some(one), Some(other)) => one.difference(other),
            (one, _) => one.cloned().unwrap_or_default(),
        })
    }

    fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Whether both have the same below them, without looking at it.
    fn shares(&self, other: &Self) -> bool {
        self.children.len() == other.children.len() && std::ptr::eq(self.children.as_ptr(), other.children.as_ptr())
    }

    /// The paths below this node, under another node.
    fn below(&self, member: bool) -> Self {
        Self { member, children: self.children.clone() }
    }

    fn join(&self, other: &Self, member: bool, each: impl Fn(Option<&Self>, Option<&Self>) -> Self) -> Self {
        let (mut one, mut two) = (self.children.iter().peekable(), other.children.iter().peekable());
        let mut children = EcoVec::new();
        loop {
            let order = match (one.peek(), two.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let left = if order.is_le() { one.next() } else { None };
            let right = if order.is_ge() { two.next() } else { None };
            let child = each(left.map(|(_, child)| child), right.map(|(_, child)| child));
            if let Some((step, _)) = left.or(right).filter(|_| !child.is_empty()) {
                children.push((step.clone(), child));
            }
        }
        Self { member, children }
    }

    /// Removes the object itself, which no manager owns.
    pub(crate) fn drop_root(&mut self) {
        self.member = false;
    }

    /// Removes a field of the object with everything below it.
    pub(crate) fn drop_field(&mut self, name: &str) {
        self.children.retain(|(step, _)| step.strip_prefix("f:") != Some(name));
    }

    /// The set as `FieldsV1`.
    pub(crate) fn encode(&self) -> Value {
        let mut map: Map<String, Value> =
            self.children.iter().map(|(step, child)| (step.to_string(), child.encode())).collect();
        if self.member && !map.is_empty() {
            map.insert(".".to_owned(), json!({}));
        }
        Value::Object(map)
    }

    /// Reads a `FieldsV1`; `None` if it is not an object.
    ///
    /// # Errors
    /// More fields than the budget allows.
    pub(crate) fn decode(value: &Value, budget: &mut Budget) -> Result<Option<Self>, TooManyFields> {
        let Some(map) = value.as_object() else { return Ok(None) };
        let mut set = Self { member: map.is_empty() || map.contains_key("."), ..Self::default() };
        for (text, inner) in map.iter().filter(|(step, _)| *step != ".") {
            let (Some(step), Some(child)) = (canonical(text), Self::decode(inner, budget)?) else { return Ok(None) };
            set.attach(|| step, child, budget)?;
        }
        set.settle();
        Ok(Some(set))
    }

    /// Charges the cost of the whole set.
    ///
    /// # Errors
    /// It exceeds the budget.
    pub(crate) fn charge(&self, budget: &mut Budget) -> Result<(), TooManyFields> {
        self.children.iter().try_for_each(|(step, child)| {
            budget.charge(step, !child.is_leaf())?;
            child.charge(budget)
        })
    }

    /// How many paths are in the set.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.member) + self.children.iter().map(|(_, child)| child.count()).sum::<usize>()
    }

    /// The first paths of the set in the format of conflicts, at most `most`.
    pub(crate) fn shown(&self, most: usize) -> Vec<String> {
        let mut out = Vec::new();
        self.show(&mut String::new(), most, &mut out);
        out
    }

    fn show(&self, path: &mut String, most: usize, out: &mut Vec<String>) {
        if self.member && !path.is_empty() && out.len() < most {
            out.push(path.clone());
        }
        for (step, child) in &self.children {
            if out.len() >= most {
                return;
            }
            let length = path.len();
            path.push_str(&shown(step));
            child.show(path, most, out);
            path.truncate(length);
        }
    }
}

/// Null and the empty object: they have no fields that could show their existence.
fn is_bare(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

/// A step as this module writes it; keys and values are JSON that others may have written in another order.
fn canonical(step: &str) -> Option<String> {
    let (kind, text) = step.split_once(':')?;
    match kind {
        "f" => Some(step.to_owned()),
        "i" => text.parse::<i64>().ok().map(|_| step.to_owned()),
        "k" => serde_json::from_str::<Map<String, Value>>(text).ok().map(|keys| format!("k:{}", Value::Object(keys))),
        "v" => serde_json::from_str::<Value>(text).ok().map(|value| format!("v:{value}")),
        _ => None,
    }
}

/// A step as conflicts name it: `.spec`, `[name="c"]`, `[="x"]`.
pub(crate) fn shown(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", text)) => {
            let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some(("i", index)) => format!("[{index}]"),
        Some((_, text)) => format!("[={text}]"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::merge_keys::{META, Type, by, object, set};

    static SPEC: Type = Type { fields: &[by("containers", &["name"]), set("words")] };
    static KIND: Type = Type { fields: &[META, object("spec", &SPEC)] };

    fn of(value: &Value) -> FieldSet {
        FieldSet::of(value, Shape::built(&KIND), &mut Budget::default()).unwrap()
    }

    fn read(value: &Value) -> FieldSet {
        FieldSet::decode(value, &mut Budget::default()).unwrap().unwrap()
    }

    #[test]
    fn sets_round_trip() {
        let set = of(&json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["f/g"]},
            "spec": {"selector": {"x": "y"}, "empty": {}, "null": null,
                "containers": [{"name": "c", "image": "i", "args": ["1"]}, {"name": "c", "tty": true}]}}));
        let json = json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"f/g\"": {}}},
            "f:spec": {"f:selector": {}, "f:empty": {}, "f:null": {},
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}}},
        });
        assert_eq!(set.encode(), json);
        assert_eq!(read(&json), set);
        for other in [json!(null), json!({"x": {}}), json!({"f:a": 1}), json!({"k:{": {}}), json!({"i:x": {}})] {
            assert_eq!(FieldSet::decode(&other, &mut Budget::default()), Ok(None), "{other}");
        }
        let (one, other) = (json!({"k:{\"b\":1, \"a\":2}": {}}), json!({"k:{\"a\":2,\"b\":1}": {}}));
        assert_eq!(read(&one), read(&other));
    }

    #[test]
    fn operations_go_by_the_path() {
        let one = read(&json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}}));
        let other = read(&json!({"f:a": {"f:x": {}, "f:z": {}}, "f:c": {}}));
        let union = json!({"f:a": {".": {}, "f:x": {}, "f:y": {}, "f:z": {}}, "f:b": {}, "f:c": {}});
        assert_eq!(one.union(&other).encode(), union);
        assert_eq!(one.intersection(&other).encode(), json!({"f:a": {"f:x": {}}}));
        assert_eq!(one.difference(&other).encode(), json!({"f:a": {".": {}, "f:y": {}}, "f:b": {}}));
        assert!(one.difference(&one).is_empty() && one.child("f:b").unwrap().member);
        let mut less = one.clone();
        less.drop_field("a");
        assert_eq!(less.encode(), json!({"f:b": {}}));
    }

    #[test]
    fn paths_are_readable() {
        let set =
            read(&json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}, "f:s": {"v:1": {}}}}));
        assert_eq!(set.shown(9), [".spec.containers[name=\"c\"].image", ".spec.s[=1]"]);
        assert_eq!((set.shown(1).len(), set.count()), (1, 2));
    }

    #[test]
    fn deep_and_wide_objects_are_bounded() {
        let leaves =
            |n: usize| -> Value { (0..n).map(|at| (format!("{at:x}"), json!(1))).collect::<Map<_, _>>().into() };
        let inside = |inner| Value::Object(Map::from_iter([("a".to_owned(), inner)]));
        let nested = |n: usize| (0..85).fold(leaves(n), |inner, _| inside(inner));
        assert!(FieldSet::of(&nested(20_000), Shape::built(&KIND), &mut Budget::default()).is_ok());
        let mut budget = Budget::default();
        assert_eq!(FieldSet::of(&nested(200_000), Shape::built(&KIND), &mut budget), Err(TooManyFields));
        let objects = |count: usize| -> Value {
            (0..count).map(|at| (format!("f:{at}"), json!({"f:a": {}}))).collect::<Map<_, _>>().into()
        };
        assert!(FieldSet::decode(&objects(3_000), &mut Budget::of_tenant()).is_ok());
        assert_eq!(
            FieldSet::decode(&objects(8_000), &mut Budget::of_tenant()),
            Err(TooManyFields),
            "as JSON they are large"
        );
    }
}
