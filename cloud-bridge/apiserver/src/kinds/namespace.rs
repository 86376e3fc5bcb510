//! Namespaces.

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::columns::{AGE, NAME, Table, age, name};
use super::kind::{Kind, PLAIN, Selectable, Sub, any_status, keep_status};
use crate::codec::decode;
use crate::patch::merge_keys::{CONDITIONS, META, Type, object};
use crate::resource::Serves;
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{items, object_mut, text};
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    check: Some(decode::check::<v1::Namespace>),
    rules: Rules {
        name: names::dns_label,
        return_deleted_object: true,
        spec_finalizers: true,
        // The NamespaceLifecycle admission keeps these.
        immortal: &["default", "kube-system", "kube-public"],
        ..Rules::SPEC_AND_STATUS
    },
    default,
    prepare_create,
    prepare_update: |new, old| {
        keep_status(new, old);
        if let Some(spec) = object_mut(new, "spec") {
            spec.insert("finalizers".into(), old["spec"]["finalizers"].clone());
        }
    },
    create: validate,
    status: Some(any_status),
    subresources: &[Sub::other("finalize", ("", "Namespace"), &["update"], Serves::Finalize)],
    table: &Table { columns: [NAME, ("Status", "string", 0, "The status of the namespace"), AGE], row },
    fields: &[Selectable::text("status.phase", "/status/phase"), Selectable::text("name", "/metadata/name")],
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("status", &CONDITIONS)] };

/// The label that carries its name, and its phase.
fn default(namespace: &mut Value) {
    let name = text(&namespace["metadata"], "name").to_owned();
    if !name.is_empty()
        && let Some(labels) = namespace.get_mut("metadata").and_then(|m| object_mut(m, "labels"))
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    if let Some(status) = object_mut(namespace, "status") {
        status.entry("phase").or_insert_with(|| "Active".into());
    }
}

fn prepare_create(namespace: &mut Value) {
    namespace.set("status", json!({"phase": "Active"}));
    let finalizers = namespace.at_mut(&["spec", "finalizers"]);
    match finalizers {
        Some(Value::Array(list)) if list.iter().any(|f| f == "kubernetes") => {}
        Some(Value::Array(list)) => list.push("kubernetes".into()),
        _ => {
            if let Some(spec) = object_mut(namespace, "spec") {
                spec.insert("finalizers".into(), json!(["kubernetes"]));
            }
        }
    }
}

fn validate(namespace: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    for finalizer in items(&namespace["spec"], "finalizers").iter().filter_map(Value::as_str) {
        invalid_text(&mut errors, "spec.finalizers", finalizer, names::qualified_name(finalizer));
        if !finalizer.contains('/') && finalizer != "kubernetes" {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid("spec.finalizers", &finalizer.into(), detail));
        }
    }
    errors
}

fn row(obj: &Value, now: Timestamp) -> [Value; 3] {
    [name(obj), text(&obj["status"], "phase").into(), age(obj, now)]
}
