//! How much one plan creates: it is made in one step of the thread, and all of it is in memory before the first write. Pure.

use serde_json::Value;

use super::plan::{Action, WRITES, Write};

/// Weight of what one plan creates, in bytes of memory, about: 128 pods as most are, and few of the largest.
const WEIGHT_MAX: usize = 4 << 20;
/// Memory of a value beside its text.
const VALUE: usize = 64;

/// Returns the first of these actions that one plan may have, at least one. The others are not made.
pub(crate) fn limited(actions: impl IntoIterator<Item = Action>) -> Vec<Action> {
    let (mut taken, mut sum) = (Vec::new(), 0_usize);
    for action in actions {
        let weight = match &action.write {
            Write::Create(object) => weight(object),
            Write::Delete { .. } | Write::Merge { .. } | Write::Strategic { .. } => 0,
        };
        taken.push(action);
        sum = sum.saturating_add(weight);
        // The next one is about as large.
        if taken.len() >= WRITES || sum.saturating_add(weight) > WEIGHT_MAX {
            break;
        }
    }
    taken
}

fn weight(value: &Value) -> usize {
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(fields) => fields.iter().map(|(name, inner)| name.len() + weight(inner)).sum(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::super::world::Kind;
    use super::*;

    /// How many of 500 such objects one plan has; no more are made.
    fn planned(object: &Value) -> usize {
        let made = Cell::new(0);
        let actions = (0..500).map(|_| {
            made.set(made.get() + 1);
            Action::create(Kind::Pod, "default", object.clone())
        });
        let taken = limited(actions).len();
        assert_eq!(made.get(), taken);
        taken
    }

    #[test]
    fn plan_creates_many_small_objects_or_few_large_ones() {
        let container = json!({"name": "c", "image": "i", "env": vec![json!({"name": "A", "value": "b"}); 30]});
        assert_eq!(planned(&json!({"spec": {"containers": [container, container]}})), WRITES);
        assert_eq!(planned(&json!({"spec": {"text": "x".repeat(1_400_000)}})), 2);
        assert_eq!(planned(&json!({"spec": {"env": vec![json!({"name": "A"}); 20_000]}})), 1);
        assert_eq!(planned(&json!({"spec": {"text": "x".repeat(2 * WEIGHT_MAX)}})), 1);
    }
}
