//! Objects within custom objects (`x-kubernetes-embedded-resource`): they have a kind, and the metadata that every
//! object has (K8s apiextensions-apiserver pkg/apiserver/schema/objectmeta). Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::walk::walk;
use crate::codec::decode;
use crate::codec::parse::COMPLAINTS_MAX;
use crate::resource::object_meta;
use apimachinery::field::{Errors, FieldError};
use apimachinery::names;

/// The keyword.
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// Whether a value of this schema is an embedded object.
pub(super) fn is(schema: &Value) -> bool {
    schema[EMBEDDED] == true
}

/// Drops what metadata does not have; `unknown` gets the paths. Metadata with a value of a wrong type stays as it is:
/// `validate` refuses it.
pub(super) fn prune(metadata: &mut Value, path: &str, unknown: &mut Vec<String>) {
    if metadata.is_null() {
        *metadata = json!({});
    }
    let Ok(decoded) = decode::check::<ObjectMeta>(metadata) else { return };
    let room = COMPLAINTS_MAX.saturating_sub(unknown.len());
    unknown.extend(decoded.unknown.iter().take(room).map(|field| format!("{path}.{field}")));
    *metadata = decoded.value;
}

/// Returns the errors of the objects within a value.
pub(super) fn validate(value: &Value, schema: &Value) -> Errors {
    let mut errors = Errors::new();
    walk(value, schema, &mut String::new(), &mut |value, schema, path| {
        if is(schema) && value.is_object() && !path.is_empty() {
            object(value, path, &mut errors);
        }
    });
    errors
}

fn object(object: &Value, path: &str, errors: &mut Errors) {
    for (field, wrong) in [("apiVersion", api_version as fn(&str) -> _), ("kind", kind)] {
        let at = format!("{path}.{field}");
        match object.get(field) {
            None => errors.push(FieldError::required(at, "")),
            Some(Value::String(text)) => {
                let why = if text.is_empty() { Some("must not be empty".to_owned()) } else { wrong(text) };
                errors.extend(why.map(|why| FieldError::invalid(at, &object[field], &why)));
            }
            Some(other) => errors.push(FieldError::invalid(at, other, "must be a string")),
        }
    }
    let Some(metadata) = object.get("metadata") else { return };
    match decode::check::<ObjectMeta>(metadata) {
        Err(why) => errors.push(FieldError::invalid(format!("{path}.metadata"), metadata, &why)),
        Ok(decoded) => errors.extend(object_meta::validate_embedded(&decoded.value).into_iter().map(|mut error| {
            error.field = format!("{path}.{}", error.field);
            error
        })),
    }
}

fn api_version(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn kind(text: &str) -> Option<String> {
    let wrong = names::dns_1035_label(&text.to_lowercase());
    (!wrong.is_empty()).then(|| format!("may have mixed case, but should otherwise match: {}", wrong.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::custom::schema;

    fn schema() -> Value {
        let embedded = json!({"type": "object", EMBEDDED: true, "x-kubernetes-preserve-unknown-fields": true});
        json!({"type": "object", "properties": {"one": embedded, "list": {"type": "array", "items": embedded}}})
    }

    #[test]
    fn metadata_of_embedded_objects_is_pruned() {
        let metadata = json!({"name": "a", "labels": {"x": "y"}, "creationTimestamp": null, "bogus": 1});
        let mut value = json!({"one": {"kind": "A", "metadata": metadata, "any": {"bogus": 1}},
            "list": [{"metadata": {"labels": {"x": 1}}}, {"metadata": null}]});
        let mut unknown = Vec::new();
        schema::prune(&mut value, &schema(), &mut String::new(), &mut unknown);
        assert_eq!(unknown, ["one.metadata.bogus"]);
        assert_eq!(value["one"]["metadata"], json!({"name": "a", "labels": {"x": "y"}}));
        assert_eq!((&value["one"]["any"], &value["list"][1]), (&json!({"bogus": 1}), &json!({"metadata": {}})));
        assert_eq!(value["list"][0]["metadata"], json!({"labels": {"x": 1}}), "it is refused later");
    }

    #[test]
    fn embedded_objects_are_judged_as_objects() {
        let told = |one: Value| {
            let errors = validate(&json!({ "one": one }), &schema());
            errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>()
        };
        let good =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"a": "b"}}, "spec": {}});
        assert_eq!(told(good), [""; 0]);
        assert_eq!(told(json!({})), ["one.apiVersion: Required value", "one.kind: Required value"]);
        let told =
            told(json!({"apiVersion": "a/b/c", "kind": "A_b", "metadata": {"name": "x/y", "labels": {"a": "b c"}}}));
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].ends_with("unexpected GroupVersion string: a/b/c"), "{told:?}");
        assert!(told[1].contains("may have mixed case, but should otherwise match: "), "{told:?}");
        assert!(told[2].starts_with("one.metadata.name: ") && told[3].starts_with("one.metadata.labels: "), "{told:?}");
        let wrong = validate(&json!({"list": [{"apiVersion": "v1", "kind": 1, "metadata": {"labels": 1}}]}), &schema());
        let fields: Vec<&str> = wrong.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["list[0].kind", "list[0].metadata"]);
    }
}
