//! RuntimeClasses (K8s pkg/apis/node/validation).

use serde_json::{Value, json};

use super::{affinity, resources};
use crate::resource::object_meta;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text};
use apimachinery::json::{items, text};
use apimachinery::names;

/// Validates a new RuntimeClass.
pub(crate) fn create(class: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    match text(class, "handler") {
        "" => errors.push(FieldError::required("handler", "")),
        handler => invalid_text(&mut errors, "handler", handler, names::dns_label(handler)),
    }
    resources::container(&mut errors, "overhead", &json!({"limits": class["overhead"]["podFixed"]}), &[]);
    let scheduling = &class["scheduling"];
    object_meta::labels(&mut errors, "scheduling.nodeSelector", scheduling, "nodeSelector");
    affinity::tolerations(&mut errors, "scheduling.tolerations", items(scheduling, "tolerations"));
    errors
}

/// Validates a change of one.
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    immutable(&mut errors, "handler", &new["handler"], &old["handler"]);
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers() {
        let fields = |class: Value| create(&class).into_iter().map(|e| e.field).collect::<Vec<_>>();
        assert!(fields(json!({"handler": "crun"})).is_empty());
        assert_eq!(fields(json!({})), ["handler"]);
        assert_eq!(fields(json!({"handler": "Crun"})), ["handler"]);
        assert_eq!(fields(json!({"handler": "a", "overhead": {"podFixed": {"cpu": "-1"}}})), ["overhead.limits[cpu]"]);
        assert_eq!(update(&json!({"handler": "a"}), &json!({"handler": "b"})).len(), 1);
    }
}
