//! Allowed changes of annotations of an existing pod (ValidatePodSpecificAnnotationUpdates of Kubernetes): their values
//! were used when the pod was admitted.

use serde_json::Value;

use apimachinery::field::{Errors, FieldError};
use apimachinery::json::text_entries;
use apimachinery::well_known::MIRROR_ANNOTATION;

/// Annotations of containers' AppArmor profiles, from before they were a field.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Judges a change of the annotations, by an update of the pod or of its status.
pub(crate) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    let (new, old) = (&new["metadata"], &old["metadata"]);
    let mut check = |key: &str, did: &str| {
        let path = format!("metadata.annotations[{key}]");
        if key.starts_with(APPARMOR) {
            errors.push(FieldError::forbidden(path, &format!("may not {did} AppArmor annotations")));
        } else if key == MIRROR_ANNOTATION {
            errors.push(FieldError::forbidden(path, &format!("may not {did} mirror pod annotation")));
        }
    };
    for (key, before) in text_entries(old, "annotations") {
        if new["annotations"][key] != before {
            check(key, "remove or update");
        }
    }
    for (key, _) in text_entries(new, "annotations") {
        if old["annotations"].get(key).is_none() {
            check(key, "add");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn some_annotations_stay_as_they_were() {
        let of = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let told = |new: Value, old: Value| {
            let mut errors = Errors::new();
            update(&mut errors, &of(new), &of(old));
            errors.into_iter().map(|e| e.message).collect::<Vec<_>>()
        };
        let profile = format!("{APPARMOR}c");
        for (new, old, expected) in [
            (json!({MIRROR_ANNOTATION: "a", "x": "2"}), json!({MIRROR_ANNOTATION: "a", "x": "1"}), None),
            (json!({}), json!({MIRROR_ANNOTATION: "a"}), Some("may not remove or update mirror pod annotation")),
            (
                json!({MIRROR_ANNOTATION: "b"}),
                json!({MIRROR_ANNOTATION: "a"}),
                Some("may not remove or update mirror pod annotation"),
            ),
            (json!({MIRROR_ANNOTATION: "a"}), Value::Null, Some("may not add mirror pod annotation")),
            (json!({&profile: "unconfined"}), json!({}), Some("may not add AppArmor annotations")),
            (json!({}), json!({&profile: "x"}), Some("may not remove or update AppArmor annotations")),
        ] {
            let shown = format!("{old} -> {new}");
            let told = told(new, old);
            assert_eq!(told.len(), usize::from(expected.is_some()), "{shown}: {told:?}");
            assert!(expected.is_none_or(|text| told[0].contains(text)), "{shown}: {told:?}");
        }
    }
}
