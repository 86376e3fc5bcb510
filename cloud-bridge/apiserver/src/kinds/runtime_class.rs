//! RuntimeClasses.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::node::v1;
use serde_json::{Value, json};

use super::columns::{AGE, NAME, Table, age, name};
use super::kind::{Kind, PLAIN};
use super::pod::validate::{affinity, resources};
use super::pod::warnings::common::deprecated;
use crate::codec::decode;
use crate::resource::object_meta;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text};
use apimachinery::json::{entries, items, text};
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    check: Some(decode::check::<v1::RuntimeClass>),
    create,
    update,
    warnings,
    update_warnings: warnings,
    table: &Table { columns: [NAME, ("Handler", "string", 0, "Handler specifies the underlying runtime."), AGE], row },
    ..PLAIN
};

/// K8s pkg/apis/node/validation.
fn create(class: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    match text(class, "handler") {
        "" => errors.push(FieldError::required("handler", "")),
        handler => invalid_text(&mut errors, "handler", handler, names::dns_label(handler)),
    }
    resources::container(&mut errors, "overhead", &json!({"limits": class["overhead"]["podFixed"]}), &BTreeSet::new());
    let scheduling = &class["scheduling"];
    object_meta::labels(&mut errors, "scheduling.nodeSelector", scheduling, "nodeSelector");
    affinity::tolerations(&mut errors, "scheduling.tolerations", items(scheduling, "tolerations"));
    errors
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    immutable(&mut errors, "handler", &new["handler"], &old["handler"]);
    errors
}

/// K8s pkg/api/node/util.go.
fn warnings(class: &Value) -> Vec<String> {
    let labels = entries(&class["scheduling"], "nodeSelector");
    labels.filter_map(|(label, _)| Some(format!("scheduling.nodeSelector: {}", deprecated(label)?))).collect()
}

fn row(obj: &Value, now: Timestamp) -> [Value; 3] {
    [name(obj), text(obj, "handler").into(), age(obj, now)]
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
        let old = json!({"scheduling": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}});
        assert!(warnings(&old)[0].starts_with("scheduling.nodeSelector: deprecated since v1.14"));
        assert_eq!(update(&json!({"handler": "a"}), &json!({"handler": "b"})).len(), 1);
    }
}
