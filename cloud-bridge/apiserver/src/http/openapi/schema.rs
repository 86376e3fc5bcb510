//! Schemas of the built-in kinds, generated from their shapes: field names and types, no descriptions.

use serde_json::{Map, Value, json};

use crate::codec::messages::{self, Field};

/// Messages of apimachinery; all other names without a group are of the core group.
const META: &[&str] = &[
    "Condition",
    "DeleteOptions",
    "LabelSelector",
    "LabelSelectorRequirement",
    "ManagedFieldsEntry",
    "ObjectMeta",
    "OwnerReference",
    "Preconditions",
];

/// The schemas of a kind's message and of all messages it needs, added to `schemas` by their full names.
/// Returns the kind's own schema name, or `None` for a kind without a described shape.
pub(super) fn add(schemas: &mut Map<String, Value>, group: &str, kind: &str) -> Option<String> {
    let name = messages::message_name(group, kind);
    messages::message(&name)?;
    let mut todo = vec![name.clone()];
    while let Some(name) = todo.pop() {
        let full = full_name(&name);
        let Some(message) = messages::message(&name).filter(|_| !schemas.contains_key(&full)) else { continue };
        let mut properties = Map::new();
        add_fields(&mut properties, &mut todo, message);
        schemas.insert(full, json!({"type": "object", "properties": properties}));
    }
    Some(full_name(&name))
}

fn add_fields(properties: &mut Map<String, Value>, todo: &mut Vec<String>, message: &'static str) {
    for field in messages::fields(message) {
        match field.kind.strip_prefix('@') {
            Some(inner) if field.name.is_empty() => {
                if let Some(inlined) = messages::message(inner) {
                    add_fields(properties, todo, inlined);
                }
            }
            _ => {
                properties.insert(field.name.to_owned(), property(field, todo));
            }
        }
    }
}

fn property(field: Field, todo: &mut Vec<String>) -> Value {
    if let Some(element) = field.kind.strip_prefix('*') {
        return json!({"type": "array", "items": of(element, todo)});
    }
    if let Some(element) = field.kind.strip_prefix('%') {
        return json!({"type": "object", "additionalProperties": of(element, todo)});
    }
    of(field.kind, todo)
}

fn of(kind: &str, todo: &mut Vec<String>) -> Value {
    if let Some(message) = kind.strip_prefix('@') {
        todo.push(message.to_owned());
        return json!({"allOf": [{"$ref": format!("#/components/schemas/{}", full_name(message))}]});
    }
    match kind {
        "i" => json!({"type": "integer"}),
        "b" => json!({"type": "boolean"}),
        "y" => json!({"type": "string", "format": "byte"}),
        "o" => json!({"type": "string", "format": "int-or-string"}),
        "t" | "u" => json!({"type": "string", "format": "date-time"}),
        "f" | "r" => json!({"type": "object"}),
        _ => json!({"type": "string"}),
    }
}

/// `io.k8s.api.core.v1.Pod`.
pub(super) fn full_name(message: &str) -> String {
    match message.split_once('.') {
        Some((group, name)) => format!("io.k8s.api.{group}.v1.{name}"),
        None if META.contains(&message) => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{message}"),
        None => format!("io.k8s.api.core.v1.{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        let mut schemas = Map::new();
        let pod = add(&mut schemas, "", "Pod").expect("a described kind");
        assert_eq!(pod, "io.k8s.api.core.v1.Pod");
        let text = Value::Object(schemas.clone()).to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(schemas.contains_key(name), "{name}");
        }
        // A volume's source is inlined, as in JSON.
        assert!(schemas["io.k8s.api.core.v1.Volume"]["properties"]["emptyDir"].is_object());
        assert_eq!(add(&mut schemas, "e.x", "Widget"), None);
    }
}
