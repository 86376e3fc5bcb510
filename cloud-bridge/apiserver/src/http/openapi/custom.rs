//! The schema of a custom kind as it is published: that of its definition with what each object has beside it
//! (apiextensions-apiserver pkg/controller/openapi: builder/builder.go, v2/conversion.go).

use sampan_json::SetField;
use serde_json::{Map, Value, json};

use super::form::Form;
use super::schema;
use crate::resource::Resource;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
/// Keywords that OpenAPI v2 does not have.
const BEYOND_V2: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "nullable"];

/// The published schema. Referenced schemas are added to `schemas`.
pub(super) fn published(schemas: &mut Map<String, Value>, form: Form, resource: &Resource) -> Value {
    let own = resource.strategy().schema().filter(|schema| schema.is_object());
    let mut schema = match (own, form) {
        (None, _) => return json!({"type": "object"}),
        // Otherwise kubectl would refuse fields that are not named.
        (Some(own), Form::V2) if own[PRESERVE] == true => return json!({"type": "object"}),
        (Some(own), Form::V2) => {
            let mut schema = own.clone();
            to_v2(&mut schema);
            schema
        }
        (Some(own), Form::V3) => own.clone(),
    };
    let metadata = schema::add_metadata(schemas, form);
    add_identity(&mut schema, form, &metadata);
    embed(&mut schema, form, &metadata);
    schema
}

/// Adds the fields that identify an object.
fn add_identity(schema: &mut Value, form: Form, metadata: &str) {
    let version = "APIVersion defines the group and version of this representation of an object.";
    let kind = "Kind is what the object is; it cannot be changed.";
    let mut reference = form.reference(metadata);
    reference.set("description", "Standard object's metadata.".into());
    schema.set_at(&["properties", "apiVersion"], json!({"type": "string", "description": version}));
    schema.set_at(&["properties", "kind"], json!({"type": "string", "description": kind}));
    schema.set_at(&["properties", "metadata"], reference);
}

/// Adds these fields to embedded objects.
fn embed(schema: &mut Value, form: Form, metadata: &str) {
    below(schema, &mut |inner| embed(inner, form, metadata));
    let open = form == Form::V2 && schema[PRESERVE] == true;
    if open || schema[EMBEDDED] != true {
        return;
    }
    add_identity(schema, form, metadata);
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for field in ["kind", "apiVersion"] {
        if !required.iter().any(|name| name == field) {
            required.push(field.into());
        }
    }
    schema.set("required", required.into());
}

/// Calls `visit` for the schemas of fields and elements.
fn below(schema: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(&mut *visit);
    }
    for field in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(field).filter(|inner| inner.is_object()) {
            visit(inner);
        }
    }
}

fn to_v2(schema: &mut Value) {
    let nullable = |schema: &Value| schema["nullable"] == true;
    if let (Some(properties), Some(required)) = (schema["properties"].as_object(), schema["required"].as_array()) {
        let must = |name: &&Value| !name.as_str().and_then(|name| properties.get(name)).is_some_and(nullable);
        let kept: Vec<Value> = required.iter().filter(must).cloned().collect();
        schema.set("required", kept.into());
    }
    let open = schema[PRESERVE] == true;
    let any = nullable(schema);
    let Some(fields) = schema.as_object_mut() else { return };
    fields.retain(|name, _| !BEYOND_V2.contains(&name.as_str()));
    if open || any {
        fields.remove("items");
        fields.remove("properties");
    }
    let untyped = match fields.get("type").and_then(Value::as_str) {
        Some("array") => !fields.contains_key("items"),
        Some("object") => open,
        _ => false,
    };
    if any || untyped {
        fields.remove("type");
    }
    if fields.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        fields.remove("required");
    }
    below(schema, &mut to_v2);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(mut schema: Value) -> Value {
        to_v2(&mut schema);
        schema
    }

    #[test]
    fn what_v2_cannot_say_is_left_out() {
        let plain = json!({"type": "object", "description": "d", "required": ["a"], "properties": {
            "a": {"type": "string", "pattern": "x", "enum": ["x"], "default": "x"},
            "l": {"type": "array", "items": {"type": "object"}},
        }});
        assert_eq!(v2(plain.clone()), plain);
        let junctors = json!({"type": "object", "anyOf": [{}], "oneOf": [{}], "allOf": [{}], "not": {}});
        assert_eq!(v2(junctors), json!({"type": "object"}));
        let nullable = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "object", "nullable": true, "properties": {"x": {"type": "string"}}},
        }});
        assert_eq!(v2(nullable), json!({"type": "object", "properties": {"a": {}}}));
        let open =
            json!({"type": "object", "properties": {"s": {"type": "object", PRESERVE: true, "properties": {"x": {}}}}});
        assert_eq!(v2(open)["properties"]["s"], json!({PRESERVE: true}));
        assert_eq!(v2(json!({"type": "array", PRESERVE: true, "items": {}})), json!({PRESERVE: true}));
    }

    #[test]
    fn objects_within_objects_have_kinds() {
        let template = json!({"type": "object", EMBEDDED: true, "required": ["kind"]});
        let mut schema = json!({"type": "object", "properties": {"t": template.clone()}});
        embed(&mut schema, Form::V3, "meta");
        let within = &schema["properties"]["t"];
        assert_eq!(within["required"], json!(["kind", "apiVersion"]));
        assert_eq!(within["properties"]["metadata"]["allOf"][0]["$ref"], "#/components/schemas/meta");
        assert!(schema["properties"].get("kind").is_none());
        let mut open = template;
        open[PRESERVE] = json!(true);
        embed(&mut open, Form::V2, "meta");
        assert!(open.get("properties").is_none());
    }
}
