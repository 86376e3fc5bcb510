//! The annotation of client-side apply, which kubectl and server-side apply by the manager `kubectl` keep together
//! (apimachinery pkg/util/managedfields/internal: lastapplied.go, lastappliedmanager.go, lastappliedupdater.go).

use sampan_json::SetField;
use serde_json::{Map, Value};

use crate::patch::budget::Budget;
use crate::patch::changes::Changes;
use crate::patch::field_set::FieldSet;
use crate::patch::shape::Shape;
use crate::registry::context::Context;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The only manager that takes over fields of client-side apply.
pub(super) const MANAGER: &str = "kubectl";
/// Maximum size of all annotations of an object, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// The fields that client-side apply set and that are unchanged since: kubectl may take them over without a conflict.
pub(super) fn unchanged(ctx: &Context<'_>, live: &Value) -> Option<FieldSet> {
    let text = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let last = ctx.checked(serde_json::from_str(text).ok()?).ok()?.value;
    unchanged_since(&last, live, ctx.resource.strategy().shape(), [ctx.field_budget(), ctx.change_budget()])
}

fn unchanged_since(
    last: &Value,
    live: &Value,
    shape: Shape<'_>,
    [mut fields, mut changes]: [Budget; 2],
) -> Option<FieldSet> {
    let set = FieldSet::of(last, shape, &mut fields).ok()?;
    let since = Changes::between(last, live, shape, &mut changes).ok()?;
    Some(set.difference(&since.written()).difference(&since.removed))
}

/// The annotation for an applied object: its text without the annotation itself.
pub(super) fn config(written: &mut Value) -> String {
    let own = annotations(written).and_then(|annotations| annotations.remove(ANNOTATION));
    let text = format!("{written}\n");
    if let (Some(annotations), Some(own)) = (annotations(written), own) {
        annotations.insert(ANNOTATION.to_owned(), own);
    }
    text
}

fn annotations(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
}

/// Updates an existing annotation to the applied object. One that would be too large is removed.
pub(super) fn refresh(object: &mut Value, text: String) {
    let Some(annotations) = object["metadata"]["annotations"].as_object() else { return };
    if !annotations.contains_key(ANNOTATION) {
        return;
    }
    let others = annotations.iter().filter(|(name, _)| *name != ANNOTATION);
    let size: usize = others.map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if size + ANNOTATION.len() + text.len() <= ANNOTATIONS_MAX {
        object.set_at(&["metadata", "annotations", ANNOTATION], text.into());
    } else if let Some(annotations) = self::annotations(object) {
        annotations.remove(ANNOTATION);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::patch::merge_keys;

    #[test]
    fn annotation_follows_what_was_applied() {
        let mut object = json!({"metadata": {"annotations": {ANNOTATION: "{}\n", "other": "x"}}});
        let written = json!({"data": {"a": "1"}, "metadata": {"annotations": {ANNOTATION: "old", "mine": "1"}}});
        let config = |written: &Value| {
            let mut same = written.clone();
            let text = config(&mut same);
            assert_eq!(same, *written);
            text
        };
        refresh(&mut object, config(&written));
        let text = object["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
        assert_eq!(text, "{\"data\":{\"a\":\"1\"},\"metadata\":{\"annotations\":{\"mine\":\"1\"}}}\n");
        refresh(&mut object, config(&json!({ "data": "x".repeat(ANNOTATIONS_MAX) })));
        assert_eq!(object["metadata"]["annotations"], json!({"other": "x"}), "too large");
        refresh(&mut object, config(&written));
        assert_eq!(object["metadata"]["annotations"], json!({"other": "x"}), "it is not made anew");
    }

    #[test]
    fn fields_that_somebody_changed_are_not_taken_over() {
        let shape = Shape::built(&merge_keys::OBJECT);
        let last = json!({"spec": {"a": 1, "b": 1, "c": 1}});
        let live = json!({"spec": {"a": 1, "b": 2, "d": 1}});
        let set = unchanged_since(&last, &live, shape, [Budget::default(), Budget::default()]).unwrap();
        assert_eq!(set.encode(), json!({"f:spec": {"f:a": {}}}));
    }
}
