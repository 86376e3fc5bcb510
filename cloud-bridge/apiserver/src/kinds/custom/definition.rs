//! The kind CustomResourceDefinition itself: defaults, preparation, validation.

use edge_protocol::json::SetField;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::approval;
use crate::kinds;
use crate::patch::strategic::PatchError;
use crate::resource::strategy::{Column, Strategy};
use apimachinery::field::FieldError;
use apimachinery::json::items_mut;
use apimachinery::meta;
use apimachinery::names;

/// The strategy of definitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition;

impl Strategy for Definition {
    fn default(&self, obj: &mut Value) {
        let Some(names) = obj.at_mut(&["spec", "names"]).filter(|names| names.is_object()) else { return };
        let kind = names["kind"].as_str().unwrap_or_default().to_owned();
        if names["singular"].as_str().unwrap_or_default().is_empty() {
            names.set("singular", kind.to_lowercase().into());
        }
        if names["listKind"].as_str().unwrap_or_default().is_empty() && !kind.is_empty() {
            names.set("listKind", format!("{kind}List").into());
        }
        if obj["spec"]["conversion"].is_null() {
            obj.set_at(&["spec", "conversion"], json!({ "strategy": "None" }));
        }
        for version in obj.at_mut(&["spec", "versions"]).and_then(Value::as_array_mut).into_iter().flatten() {
            for column in items_mut(version, "additionalPrinterColumns") {
                if column["priority"] == 0
                    && let Some(map) = column.as_object_mut()
                {
                    map.remove("priority");
                }
            }
            if version["additionalPrinterColumns"].is_null()
                && let Some(map) = version.as_object_mut()
            {
                map.remove("additionalPrinterColumns");
            }
        }
    }

    fn prepare_create(&self, obj: &mut Value) {
        obj.set("status", json!({}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        new.set("status", old["status"].clone());
    }

    fn validate_create(&self, obj: &Value) -> Vec<FieldError> {
        let mut errors = validate(obj);
        approval::create(obj, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate(new);
        approval::update(new, old, &mut errors);
        for field in ["group", "scope"] {
            if new["spec"][field] != old["spec"][field] {
                errors.push(FieldError::invalid(format!("spec.{field}"), &new["spec"][field], "field is immutable"));
            }
        }
        errors
    }

    fn columns(&self) -> Vec<Column> {
        kinds::CRD.columns()
    }

    fn row(&self, obj: &Value, now: Timestamp) -> Vec<Value> {
        kinds::CRD.row(obj, now)
    }

    fn strategic_merge(&self, current: &Value, patch: &Value) -> Result<Value, PatchError> {
        kinds::CRD.strategic_merge(current, patch)
    }
}

fn validate(obj: &Value) -> Vec<FieldError> {
    let spec = &obj["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut errors = Vec::new();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let name = meta::text(obj, "name");
    if name != format!("{plural}.{group}") {
        errors.push(FieldError::invalid("metadata.name", &name.into(), "must be spec.names.plural+\".\"+spec.group"));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(why) = names::dns_subdomain(&group).first() {
        errors.push(FieldError::invalid("spec.group", &group.as_str().into(), why));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            &group.as_str().into(),
            "should be a domain with at least one dot",
        ));
    }
    let scope = text(&spec["scope"]);
    if scope.is_empty() {
        errors.push(FieldError::required("spec.scope", ""));
    } else if !matches!(scope.as_str(), "Cluster" | "Namespaced") {
        errors.push(FieldError::not_supported("spec.scope", &scope.into(), &["Cluster", "Namespaced"]));
    }
    for (field, label) in [
        ("plural", plural),
        ("singular", text(&spec["names"]["singular"])),
        ("kind", text(&spec["names"]["kind"]).to_lowercase()),
    ] {
        let path = format!("spec.names.{field}");
        if label.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if let Some(why) = names::dns_1035_label(&label).first() {
            errors.push(FieldError::invalid(path, &label.into(), why));
        }
    }
    versions(spec, &mut errors);
    errors
}

fn versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.is_empty() {
        errors.push(FieldError::required("spec.versions", "must have at least one version"));
        return;
    }
    let mut seen: Vec<&Value> = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = version["name"].as_str().unwrap_or_default();
        if let Some(why) = names::dns_1035_label(name).first() {
            errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), why));
        }
        if seen.contains(&&version["name"]) {
            errors.push(FieldError::invalid("spec.versions", &spec["versions"], "must contain unique version names"));
        }
        seen.push(&version["name"]);
        let schema = &version["schema"]["openAPIV3Schema"];
        let schema_path = format!("{path}.schema.openAPIV3Schema");
        if !schema.is_object() {
            errors.push(FieldError::required(schema_path, "schemas are required"));
        } else if schema["type"].is_null() {
            errors.push(FieldError::required(format!("{schema_path}.type"), "must not be empty at the root"));
        } else if schema["type"] != "object" {
            errors.push(FieldError::invalid(
                format!("{schema_path}.type"),
                &schema["type"],
                "must be object at the root",
            ));
        }
    }
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            "must have exactly one version marked as storage version",
        ));
    }
}
