//! Schemas of the built-in kinds, generated from their shapes: field names and types, and no descriptions but of the
//! metadata, which custom kinds have, too.

use sampan_json::SetField;
use serde_json::{Map, Value, json};

use super::form::Form;
use crate::codec::messages::{self, Message};

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

/// What fields of the metadata are for.
const METADATA: &[(&str, &str)] = &[
    ("annotations", "Annotations are texts that tools keep with the object; nothing is selected by them."),
    ("creationTimestamp", "CreationTimestamp is a timestamp of the server's clock, taken when the object was created."),
    ("deletionGracePeriodSeconds", "Seconds that the object has for its end. Set by the server."),
    ("deletionTimestamp", "DeletionTimestamp is when the object is to be gone. Set by the server."),
    ("finalizers", "What has to be done before the object goes. It goes with the last of them."),
    ("generateName", "The beginning of a name that the server completes when no name is given."),
    ("generation", "How often the desired state has changed. Set by the server."),
    ("labels", "Labels are short texts by which objects are selected."),
    ("managedFields", "Who set which fields. Kept by server-side apply."),
    ("name", "Name is unique among objects of a kind within a namespace."),
    ("namespace", "Namespace is where the name is unique; empty for objects of the whole cluster."),
    ("ownerReferences", "The objects that this one depends on: with the last of them it goes, too."),
    ("resourceVersion", "ResourceVersion changes with each write. It means something to the server only."),
    ("uid", "UID tells the object from earlier and later ones of its name. Set by the server."),
];

/// The schemas of a kind's message and of all messages it needs, added to `schemas` by their full names.
/// Returns the kind's own schema name, or `None` for a kind without a described shape.
pub(super) fn add(schemas: &mut Map<String, Value>, form: Form, message: &str) -> Option<String> {
    messages::message(message)?;
    add_messages(schemas, form, message);
    Some(full_name(message))
}

/// The schema of the metadata, which custom kinds refer to. Returns its name.
pub(super) fn add_metadata(schemas: &mut Map<String, Value>, form: Form) -> String {
    add_messages(schemas, form, "ObjectMeta");
    full_name("ObjectMeta")
}

fn add_messages(schemas: &mut Map<String, Value>, form: Form, name: &str) {
    let mut todo = vec![name.to_owned()];
    while let Some(name) = todo.pop() {
        let full = full_name(&name);
        let Some(message) = messages::message(&name).filter(|_| !schemas.contains_key(&full)) else { continue };
        let mut properties = Map::new();
        add_fields(&mut properties, &mut todo, form, message);
        if name == "ObjectMeta" {
            for (field, text) in METADATA {
                if let Some(property) = properties.get_mut(*field) {
                    property.set("description", (*text).into());
                }
            }
        }
        schemas.insert(full, json!({"type": "object", "properties": properties}));
    }
}

fn add_fields(properties: &mut Map<String, Value>, todo: &mut Vec<String>, form: Form, message: Message) {
    for field in message {
        match field.kind.strip_prefix('@') {
            Some(inner) if field.name.is_empty() => {
                if let Some(inlined) = messages::message(inner) {
                    add_fields(properties, todo, form, inlined);
                }
            }
            _ => {
                properties.insert(field.name.to_owned(), of(field.kind, form, todo));
            }
        }
    }
}

fn of(kind: &str, form: Form, todo: &mut Vec<String>) -> Value {
    if let Some(element) = kind.strip_prefix('*') {
        return json!({"type": "array", "items": of(element, form, todo)});
    }
    if let Some(element) = kind.strip_prefix('%') {
        return json!({"type": "object", "additionalProperties": of(element, form, todo)});
    }
    if let Some(message) = kind.strip_prefix('@') {
        todo.push(message.to_owned());
        return form.reference(&full_name(message));
    }
    match kind {
        "i" => json!({"type": "integer"}),
        "d" => json!({"type": "number"}),
        "b" => json!({"type": "boolean"}),
        "y" => json!({"type": "string", "format": "byte"}),
        "o" => json!({"type": "string", "format": "int-or-string"}),
        "t" | "u" => json!({"type": "string", "format": "date-time"}),
        "f" => json!({"type": "object"}),
        // Anything, or something of several types.
        "r" | "x" | "l" | "w" => json!({}),
        _ => json!({"type": "string"}),
    }
}

/// `io.k8s.api.core.v1.Pod`.
pub(super) fn full_name(message: &str) -> String {
    match message.split_once('.') {
        Some(("apiextensions", name)) => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}")
        }
        Some((group, name)) if name.contains('.') => format!("io.k8s.api.{group}.{name}"),
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
        let pod = add(&mut schemas, Form::V3, "Pod").expect("a described kind");
        assert_eq!(pod, "io.k8s.api.core.v1.Pod");
        let text = Value::Object(schemas.clone()).to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(schemas.contains_key(name), "{name}");
        }
        // A volume's source is inlined, as in JSON.
        assert!(schemas["io.k8s.api.core.v1.Volume"]["properties"]["emptyDir"].is_object());
        assert_eq!(add(&mut schemas, Form::V3, "e.Widget"), None);
        // A schema of schemas refers to itself.
        let definition = add(&mut schemas, Form::V3, "apiextensions.CustomResourceDefinition");
        assert_eq!(definition, Some(format!("{}CustomResourceDefinition", full_name("apiextensions."))));
        assert!(schemas.contains_key(&full_name("apiextensions.JSONSchemaProps")));
        let scaler = add(&mut schemas, Form::V3, "autoscaling.v2.HorizontalPodAutoscaler").expect("a described kind");
        assert_eq!(scaler, "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler");
    }

    #[test]
    fn maps_of_lists_are_described() {
        let mut schemas = Map::new();
        let user = add(&mut schemas, Form::V3, "authentication.UserInfo").expect("a described kind");
        let texts = json!({"type": "array", "items": {"type": "string"}});
        let expected = json!({"type": "object", "additionalProperties": texts});
        assert_eq!(schemas[&user]["properties"]["extra"], expected);
    }

    #[test]
    fn all_fields_of_the_metadata_are_described() {
        let mut schemas = Map::new();
        let name = add_metadata(&mut schemas, Form::V2);
        let properties = schemas[&name]["properties"].as_object().unwrap().clone();
        let bare = |(field, property): (&String, &Value)| property["description"].is_null() && field != "selfLink";
        assert!(!properties.iter().any(bare), "{properties:?}");
        assert_eq!(properties["creationTimestamp"]["type"], "string");
    }
}
