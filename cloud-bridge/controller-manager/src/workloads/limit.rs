//! How much one plan creates: it is made in one step of the thread, and all of it is in memory before the first write. Pure.

use super::plan::{Action, WRITES, Write};

/// Weight of what one plan creates, in bytes of memory, about: 128 pods as most are, and few of the largest.
const WEIGHT_MAX: usize = 4 << 20;

/// Returns the first of these actions that one plan may have, at least one. The others are not made.
pub(crate) fn limited(actions: impl IntoIterator<Item = Action>) -> Vec<Action> {
    let (mut taken, mut sum) = (Vec::new(), 0_usize);
    for action in actions {
        let weight = match &action.write {
            Write::Create(object) => object.weight(),
            // The result of a read decides about the next steps.
            Write::Read => WEIGHT_MAX,
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::{Value, json};

    use super::super::world::Kind;
    use super::*;

    /// Number of creations in one plan for 500 such objects.
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

    #[test]
    fn plan_ends_with_what_it_reads() {
        let read = || Action::read(Kind::ControllerRevision, &ObjectMeta::default());
        let create = || Action::create(Kind::Pod, "default", json!({}));
        let taken = limited([create(), read(), read(), create()]);
        assert_eq!(taken.iter().map(Action::is_read).collect::<Vec<_>>(), [false, true]);
    }
}
